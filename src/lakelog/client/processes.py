"""Notifies objects of the client of a fork and of the end of the process. Objects register themselves here."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import socket
import uuid
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger("lakelog")


class ForkAware(Protocol):
    """An object that is notified in a forked child, to drop the connections and threads of the parent."""

    def reset_after_fork(self) -> None: ...


class ExitAware(Protocol):
    """An object that publishes or reports its remaining messages when the process ends."""

    def finish_at_exit(self) -> None: ...


def unique_name() -> str:
    """Return a name for a member or an owner in this process: the host, the process id and random digits."""
    host = re.sub(r"[^a-z0-9.-]", "-", socket.gethostname().lower())[:80] or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


_forked: WeakSet[ForkAware] = WeakSet()
_exiting: dict[int, ExitAware] = {}
inherited: list[object] = []
"""Connections of the parent, kept in the child: closing one could disturb the parent's event loop."""


def after_fork(thing: ForkAware) -> None:
    _forked.add(thing)


def before_exit(thing: ExitAware) -> None:
    """Keep the object alive until `forget`, so that messages it has accepted are not lost with the last reference."""
    _exiting[id(thing)] = thing


def open_until_exit() -> list[ExitAware]:
    """Return the objects that are open, oldest first."""
    return list(_exiting.values())


def forget(thing: ExitAware) -> None:
    _exiting.pop(id(thing), None)


def _child() -> None:
    _exiting.clear()
    for thing in list(_forked):
        thing.reset_after_fork()


def _finish() -> None:
    # The newest first: a producer before the client that it sends through.
    for thing in reversed(list(_exiting.values())):
        with contextlib.suppress(Exception):
            thing.finish_at_exit()
    _exiting.clear()


os.register_at_fork(after_in_child=_child)
atexit.register(_finish)
