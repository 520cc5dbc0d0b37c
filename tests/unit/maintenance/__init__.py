"""The agents of maintenance, over stores in memory."""
