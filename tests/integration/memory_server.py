"""A server over stores in memory, as a separate process: `python -m tests.integration.memory_server`.

Settings come from LAKELOG_ variables. LAKELOG_TEST_TOKEN becomes a token with all rights in default/default, and
LAKELOG_TEST_OTHER_TOKEN one in other/default. LAKELOG_TEST_WEAK makes the store report that it is not durable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from lakelog.engine import Engine, EngineSettings
from lakelog.errors import ConfigurationError
from lakelog.model.token import Right, Token, hash_secret
from lakelog.server import ServerSettings, run, serving
from lakelog.storage.failover import Durability
from lakelog.storage.memory import MemoryCatalog, MemoryStore


class _Store(MemoryStore):
    async def durability(self) -> Durability:
        weak = os.environ.get("LAKELOG_TEST_WEAK")
        return Durability(weak=[weak] if weak else [], synchronous_standby=False, timeline=1)


@asynccontextmanager
async def open_engine(settings: ServerSettings) -> AsyncIterator[Engine]:
    engine = Engine(MemoryCatalog(), {0: _Store()}, EngineSettings(memory_bytes=settings.memory_bytes))
    await engine.start()
    for project, variable in (("default", "LAKELOG_TEST_TOKEN"), ("other", "LAKELOG_TEST_OTHER_TOKEN")):
        if secret := os.environ.get(variable):
            scope = await engine.catalog.scope_create(project, "default")
            token = Token(id=project, name=project, rights=tuple(Right), created_at=datetime.now(UTC), expires_at=None)
            await engine.catalog.token_create(scope, token, hash_secret(secret))
    try:
        yield engine
    finally:
        await engine.close()
        print("engine closed", flush=True)


if __name__ == "__main__":
    # A slow test still gets a response on its idle connection: a tenth of the drain is the limit.
    serving.LAME_DUCK_SECONDS = 20.0
    try:
        sys.exit(run(open_engine, ServerSettings()))
    except ConfigurationError as error:
        sys.exit(f"{error.code}: {error.detail}")
