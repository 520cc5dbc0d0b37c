"""The machine that the engine uses: the monotonic clock, random numbers, and the log of unexpected errors.

During a run these come from the simulation. Nothing else in the process is affected, because no other thread runs.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from importlib import import_module
from types import TracebackType
from typing import Any

# This module draws random numbers on its first import, which must not happen during a run.
import numpy.random  # noqa: F401

from lakelog.coordinator.leasing import closed_leases as closed
from lakelog.maintenance import agent
from prove.simulation.loop import VirtualLoop

_step: Any = import_module("lakelog.coordinator.leasing.step")
"""The module, imported by name because its package has a function of the same name."""
_log = logging.getLogger("lakelog")


class _Unexpected(logging.Handler):
    """Keeps log records of level error, because the engine logs unexpected states as errors.

    Messages that a failover lost are expected.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if vars(record).get("event") == "messages_lost":
            return
        error = record.exc_info[1] if record.exc_info else None
        self.found.append(f"{record.name}: {record.getMessage()} ({error!r})")


class Machine:
    """The machine of one run, as a context: `with Machine(loop, chance): …`.

    `remembered_bytes` limits the remembered closed leases, so that outcomes are forgotten even in a small run.
    """

    def __init__(self, loop: VirtualLoop, chance: random.Random, remembered_bytes: int | None = None) -> None:
        self._remembered_bytes = remembered_bytes
        self._loop = loop
        self._chance = chance
        self._handler = _Unexpected()

    @property
    def unexpected(self) -> list[str]:
        return self._handler.found

    def __enter__(self) -> Machine:
        chance = self._chance
        self._kept = (time.monotonic, secrets.randbits, secrets.randbelow, secrets.token_hex, agent._chance)
        self._limits = (closed.CHECK_AFTER, _step.REMEMBER_BYTES)
        self._logs = (_log.level, _log.propagate, _log.handlers)
        time.monotonic = self._loop.monotonic
        secrets.randbits = lambda k: chance.getrandbits(k)
        secrets.randbelow = lambda exclusive_upper_bound: chance.randrange(exclusive_upper_bound)
        secrets.token_hex = lambda nbytes=None: chance.randbytes(nbytes or 16).hex()
        agent._chance = chance
        if self._remembered_bytes is not None:
            closed.CHECK_AFTER, _step.REMEMBER_BYTES = 1, self._remembered_bytes
        _log.setLevel(logging.ERROR)
        _log.propagate, _log.handlers = False, [self._handler]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        time.monotonic, secrets.randbits, secrets.randbelow, secrets.token_hex, agent._chance = self._kept
        closed.CHECK_AFTER, _step.REMEMBER_BYTES = self._limits
        _log.setLevel(self._logs[0])
        _log.propagate, _log.handlers = self._logs[1:]
