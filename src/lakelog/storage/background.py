"""Marks statements of background work, so that they do not take the connections of callers."""

from __future__ import annotations

from contextvars import ContextVar

is_background: ContextVar[bool] = ContextVar("is_background", default=False)
"""True in tasks of background work. Stores run few statements of such tasks at a time."""
