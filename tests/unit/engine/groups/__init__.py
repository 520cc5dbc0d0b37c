"""The engine, over stores in memory."""
