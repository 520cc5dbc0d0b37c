"""Named fail points, at which a test makes a process die, stop, fail or wait.

They cost nothing unless armed: hot paths check `failpoints.armed` first. `LAKELOG_FAILPOINTS` arms them, for example
`publish.after_commit=kill@3,fetch.before_read=error`: the first acts at the third hit, the second at every hit.
They are not for production: a server with armed fail points logs a warning when it starts.
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
    """Arm the fail points that `text` names; an empty text disarms all."""
    armed.clear()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = item.partition("=")
        action, _, at = action.partition("@")
        if action not in ACTIONS or (at and not at.isdigit()):
            raise ConfigurationError(f"Fail point '{item}' is not NAME=ACTION or NAME=ACTION@N with {ACTIONS}.")
        armed[name] = _Point(action, int(at) if at else None)


def hit(name: str) -> None:
    """Run the action of a fail point if it is armed."""
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
        raise Unavailable(f"Fail point {name} was hit.")


arm(os.environ.get(ENVIRONMENT_VARIABLE, ""))
