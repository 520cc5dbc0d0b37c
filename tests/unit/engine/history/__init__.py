"""The history of groups, over stores in memory."""
