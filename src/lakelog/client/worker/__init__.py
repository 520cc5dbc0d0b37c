"""The worker: runs the subscriptions of a client.

It is written once, for asyncio; a sync client runs it in its own event loop.
"""
