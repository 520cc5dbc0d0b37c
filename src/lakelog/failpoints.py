"""Named fail points: places where a test makes a process die, stop, fail or wait.

Free when nothing is armed; the hot paths look at `failpoints.armed` first. Armed by `LAKELOG_FAILPOINTS`, e.g.
`publish.after_commit=kill@3,fetch.before_read=error`: the action runs at the third hit, without `@n` at every hit.
Not for production: the server says loudly at its start when any is armed.
"""

from __future__ import annotations

import os
import signal
import time

from lakelog.errors import ConfigurationError, Unavailable

ENVIRONMENT_VARIABLE = "LAKELOG_FAILPOINTS"
ACTIONS = ("kill", "stop", "error", "delay")


class _Point:
    __slots__ = ("action", "at", "hits")

    def __init__(self, action: str, at: int | None) -> None:
        self.action = action
        self.at = at
        self.hits = 0


armed: dict[str, _Point] = {}


def arm(text: str) -> None:
    """Arms the points that `text` names; an empty text disarms all."""
    armed.clear()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        action, _, at = action.partition("@")
        if action not in ACTIONS or (at and not at.isdigit()):
            raise ConfigurationError(f"Fail point '{item}' is not NAME=ACTION or NAME=ACTION@N with {ACTIONS}.")
        armed[name] = _Point(action, int(at) if at else None)


def hit(name: str) -> None:
    """Runs what is armed for `name`, if anything is."""
    point = armed.get(name)
    if point is None:
        return
    point.hits += 1
    if point.at is not None and point.hits != point.at:
        return
    if point.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif point.action == "delay":
        time.sleep(0.5)
    else:
        raise Unavailable(f"Fail point {name}.")


arm(os.environ.get(ENVIRONMENT_VARIABLE, ""))
