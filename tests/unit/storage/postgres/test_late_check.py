"""A cell that could not be reached at the start: one attempt to reach it serves all callers that wait for it."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.errors import ConfigurationError, Unavailable
from lakelog.storage.postgres.connection import Database

URL = "postgresql://lakelog@127.0.0.1:1/none"


async def test_callers_of_a_silent_cell_do_not_queue_for_attempts() -> None:
    attempts = 0
    responds = asyncio.Event()

    async def check() -> None:
        nonlocal attempts
        attempts += 1
        await responds.wait()
        raise Unavailable("no response")

    database = Database.open_later(URL, Unavailable("no response"), check)
    calls = [asyncio.create_task(database.read("select 1")) for _ in range(20)]
    await asyncio.sleep(0)
    responds.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in outcomes)
    assert attempts == 1
    await database.close()


async def test_a_later_caller_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.storage.postgres.late_check.RECHECK_SECONDS", 0.0)
    attempts = 0

    async def check() -> None:
        nonlocal attempts
        attempts += 1
        raise ConfigurationError("The database belongs to another cell.")

    database = Database.open_later(URL, Unavailable("no response"), check)
    for _ in range(2):
        with pytest.raises(Unavailable, match="another cell"):
            await database.read("select 1")
    assert attempts == 2
    await database.close()
