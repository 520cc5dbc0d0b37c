"""The client: one set of methods over HTTP servers, an engine in this process, or memory.

`_async` is written by hand, and `scripts/unasync.py` generates `_sync` from it. Import from `lakelog`. The client
leaves all decisions to the engine. If its process dies, only messages that are not yet published are lost.
"""
