"""All agents of one process."""

from __future__ import annotations

import asyncio

from lakelog.engine import Engine
from lakelog.maintenance.dead_letter_expirer import DeadLetterExpirer
from lakelog.maintenance.history_sampler import HistorySampler
from lakelog.maintenance.retention_enforcer import RetentionEnforcer
from lakelog.maintenance.roller import Roller
from lakelog.maintenance.scheduled_deliverer import ScheduledDeliverer
from lakelog.maintenance.trimmer import Trimmer
from lakelog.maintenance.write_finisher import WriteFinisher

RETENTION_SECONDS = 60.0
"""How often retention is enforced by default."""


class Maintenance:
    """Starts and stops the agents together. Any number of processes may do so: one works in each cell."""

    def __init__(self, engine: Engine, *, retention_seconds: float = RETENTION_SECONDS) -> None:
        """Create the agents.

        Args:
            engine: The engine whose cells they maintain.
            retention_seconds: How often the retention of topics and of dead letters is enforced. With 0, this process
                enforces neither; interrupted deletes of topics are finished all the same.
        """
        is_enforced = retention_seconds > 0
        self._agents = (
            RetentionEnforcer(engine, every_seconds=retention_seconds or RETENTION_SECONDS, is_enforced=is_enforced),
            DeadLetterExpirer(engine, every_seconds=retention_seconds),
            Roller(engine),
            Trimmer(engine),
            WriteFinisher(engine),
            ScheduledDeliverer(engine),
            HistorySampler(engine),
        )

    def start(self) -> None:
        for agent in self._agents:
            agent.start()

    async def stop(self) -> None:
        await asyncio.gather(*(agent.stop() for agent in self._agents))
