"""Opening a connection: a cancel is never lost."""

from __future__ import annotations

import asyncio

import pytest

from lakelog.storage.postgres import connecting


class _Session:
    """A session whose check waits for an answer."""

    is_unconfirmed = False
    timeline = 1

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self.is_asked = asyncio.Event()

    async def execute(self, text: str, timeout: float) -> None: ...

    async def check(self, lowest: int) -> None:
        self.is_asked.set()
        await self.answered.wait()

    def add_log_listener(self, listener: object) -> None: ...

    def heard(self) -> None: ...

    def terminate(self) -> None: ...


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancel_beside_the_answer_of_the_server_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """`asyncio.wait_for` of Python 3.11 returns the answer instead: the task that was stopped continues for ever."""
    session = _Session()

    async def connect(url: str) -> _Session:
        return session

    monkeypatch.setattr("asyncpg.connect", connect)
    monkeypatch.setattr(connecting, "_keep_alive", lambda session: None)
    opening = asyncio.create_task(connecting._open("postgresql://", {}, 1, ""))
    await session.is_asked.wait()
    session.answered.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    if opening.cancel():
        with pytest.raises(asyncio.CancelledError):
            await opening
