"""The client for asyncio, as it is written. `_sync` is generated from it."""
