"""The client: one set of verbs over HTTP servers, an engine in this process, or memory.

`_async` is written, `_sync` is generated from it by `scripts/unasync.py`. Import from `lakelog`; this room decides
nothing that the engine decides, and holds nothing that a restart could lose but messages not yet published.
"""
