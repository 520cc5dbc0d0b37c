"""All agents of one process."""

from __future__ import annotations

import asyncio

from lakelog.engine import Engine
from lakelog.maintenance.dead_letter_expirer import DeadLetterExpirer
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.maintenance.roller import Roller
from lakelog.maintenance.trimmer import Trimmer
from lakelog.maintenance.write_finisher import WriteFinisher


class Maintenance:
    """Starts and stops the agents together. Any number of processes may do so: one works in each cell."""

    def __init__(self, engine: Engine) -> None:
        self._agents = (
            RetentionEnforcer(engine),
            DeadLetterExpirer(engine),
            Roller(engine),
            Trimmer(engine),
            WriteFinisher(engine),
        )

    def start(self) -> None:
        for agent in self._agents:
            agent.start()

    async def stop(self) -> None:
        await asyncio.gather(*(agent.stop() for agent in self._agents))
