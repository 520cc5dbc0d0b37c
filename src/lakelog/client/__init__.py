"""The client: one set of methods over HTTP servers, an engine in this process, or memory.

`_async` is written by hand, and `scripts/unasync.py` generates `_sync` from it. Import from `lakelog`. The client makes
no decision of the engine, and a restart loses nothing of it but messages that are not yet published.
"""
