"""Reports why a command takes long: the server is unreachable, fails, or does not respond.

It watches the calls of a client's transport, each of which is one attempt. It retries nothing, and does not report the
failure that ends the command; `failures` does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lakelog.cli.output import clean, say
from lakelog.client.retrying import CallRetryPolicy, is_outage, logger
from lakelog.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.client._sync.transport import Transport

R = TypeVar("R")

PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 0.2
_TRY_SECONDS = CallRetryPolicy().try_seconds
_PARTS = ("groups", "pipelines", "lake", "writes")


class Watch:
    """Watches the calls of one command in its own thread."""

    def __init__(self, place: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._clock = clock
        self._late_at: dict[object, float] = {}
        self._failing: tuple[float, str] | None = None
        self._told = False
        self._stopped = threading.Event()

    def start(self) -> None:
        # The client would log the first failure too, in other words.
        logger.disabled = True
        threading.Thread(target=self._look_always, name="lakelog-waiting", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        logger.disabled = False

    def over(self, transport: Transport) -> Transport:
        """Return the transport with all its calls watched; closing it ends the watch."""
        return cast("Transport", _Watched(transport, self))

    def run(self, call: Callable[..., R], *args: Any, wait_seconds: float = 0.0) -> R:
        """Make a call, which may take `wait_seconds` before it counts as late."""
        key = object()
        self._late_at[key] = self._clock() + PATIENCE_SECONDS + wait_seconds
        try:
            found = call(*args)
        except LakelogError as error:
            if is_outage(error):
                since = self._failing[0] if self._failing else self._clock()
                self._failing = (since, str(error.subject.get("reason") or error.detail).rstrip("."))
            raise
        finally:
            del self._late_at[key]
        self._works()
        return found

    def look(self) -> None:
        """Print once that the command is waiting, if it is."""
        if self._told:
            return
        failing, now = self._failing, self._clock()
        if failing is not None and now - failing[0] >= PATIENCE_SECONDS:
            self._tell(failing[1])
        elif any(late_at <= now for late_at in list(self._late_at.values())):
            self._tell(failing[1] if failing else "no response yet")

    def _works(self) -> None:
        failing, told = self._failing, self._told
        self._failing, self._told = None, False
        if told and failing is not None:
            say(f"Connected again after {self._clock() - failing[0]:.0f} s.")

    def _tell(self, why: str) -> None:
        self._told = True
        say(f"Waiting for {self._place}: {clean(why)}. Ctrl-C to stop.")

    def _look_always(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            self.look()


class _Watched:
    """A transport whose calls are watched, or a part of one."""

    def __init__(self, inner: object, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in _PARTS:
            return _Watched(found, self._watch)

        def call(*args: Any) -> Any:
            # The last argument of every call is its timeout: beyond the usual one, the server may wait for data.
            return self._watch.run(found, *args, wait_seconds=max(0.0, args[-1] - _TRY_SECONDS))

        return call

    def close(self) -> None:
        self._watch.stop()
        self._inner.close()  # type: ignore[attr-defined]
