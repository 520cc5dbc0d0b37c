"""Tracebacks of handlers, from the user's first frame on, for the log and for dead letters."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
import traceback
from collections.abc import Hashable
from types import FrameType, TracebackType
from typing import Any

import lakelog
from lakelog.client.worker.threads import ThreadFuture
from lakelog.model.tracebacks import cut_traceback

_MACHINERY = (
    *(f"{os.path.dirname(str(package.__file__))}{os.sep}" for package in (lakelog, asyncio, concurrent.futures)),
    threading.__file__,
)
"""Code above a handler in its traceback, which is left out."""

_CAUSES = 20
_PART_CHARS = 2000
"""The middle of a frame or an error text that is longer than this is cut out."""

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def user_exc_info(error: BaseException) -> ExcInfo | None:
    """Return what `logging` needs to print the error from the user's first frame on.

    Return None if neither the error nor what caused it has such a frame.
    """
    frames, shown = _user_frames(error), False
    cause: BaseException | None = error
    # Errors may cause each other in a circle.
    for _ in range(_CAUSES):
        if cause is None or shown:
            break
        shown, cause = _user_frames(cause) is not None, cause.__cause__
    return (type(error), error, frames) if shown else None


def traceback_of(error: BaseException | None) -> str | None:
    """Return the traceback as text, with the errors that caused it, as a dead letter keeps it."""
    exc_info = None if error is None else user_exc_info(error)
    if exc_info is None:
        return None
    return cut_traceback("".join(map(_clipped, traceback.format_exception(*exc_info))))


def stack_of(running: asyncio.Future[Any]) -> TracebackType | None:
    """Return the current stack of a handler that is still running, as a traceback; None if it is not available."""
    frames: list[FrameType] = []
    if isinstance(running, ThreadFuture):
        frame = sys._current_frames().get(running.thread_id or 0)
        while frame is not None:
            frames.insert(0, frame)
            frame = frame.f_back
    elif isinstance(running, asyncio.Task):
        waiting: Any = running.get_coro()
        while (frame := getattr(waiting, "cr_frame", None)) is not None:
            frames.append(frame)
            waiting = waiting.cr_await
    found = None
    for each in reversed(frames):
        found = TracebackType(found, each, each.f_lasti, each.f_lineno)
    return found


def kind_of(error: BaseException) -> Hashable:
    """Return the type of an error and the line that raised it, by which errors are grouped in the log."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    # The text is not part of it, because it often contains ids.
    return type(error), None if frames is None else (frames.tb_frame.f_code.co_filename, frames.tb_lineno)


def _user_frames(error: BaseException) -> TracebackType | None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_MACHINERY):
        frames = frames.tb_next
    return frames


def _clipped(part: str) -> str:
    half = _PART_CHARS // 2
    return part if len(part) <= _PART_CHARS else f"{part[:half]}\n  [...]\n{part[-half:]}"
