"""The worker: runs the subscriptions of a client. Written once, for asyncio; a sync client gives it a loop."""
