"""The lake: plans over hot batches and cold segments, decided writes, and pipelines."""
