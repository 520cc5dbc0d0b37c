"""Reserves idempotency keys in their home cell: what arrives while a call is on its way shares the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.storage.store import PartitionStore, Reservation

_MAX_PER_CALL = 2_000


class Reserver:
    """One per cell and kind of durability."""

    def __init__(self, store: PartitionStore, *, durable: bool) -> None:
        self._store = store
        self._durable = durable
        self._waiting: list[tuple[Reservation, asyncio.Future[Reservation]]] = []
        self._running: asyncio.Task[None] | None = None

    async def reserve(self, reservations: Sequence[Reservation]) -> list[Reservation]:
        """Per key the reservation that holds. A key may come twice: the first one wins."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Reservation]] = [loop.create_future() for _ in reservations]
        self._waiting.extend(zip(reservations, futures, strict=True))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return list(await asyncio.gather(*futures))

    async def _run(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[:_MAX_PER_CALL], self._waiting[_MAX_PER_CALL:]
                await self._call(taken)
        finally:
            self._running = None

    async def _call(self, taken: list[tuple[Reservation, asyncio.Future[Reservation]]]) -> None:
        firsts: dict[tuple[int, bytes], Reservation] = {}
        for reservation, _ in taken:
            firsts.setdefault((reservation.incarnation, reservation.key_hash), reservation)
        try:
            held = await self._store.reserve(list(firsts.values()), durable=self._durable)
            holders = dict(zip(firsts, held, strict=True))
            for reservation, future in taken:
                if not future.done():
                    future.set_result(holders[reservation.incarnation, reservation.key_hash])
        except Exception as error:
            # A lost reservation is harmless: whoever repeats the call finds it, or makes it.
            known = error if isinstance(error, LakelogError) else OutcomeUnknown(f"A reservation failed: {error!r}.")
            for _, future in taken:
                if not future.done():
                    future.set_exception(type(known)(known.detail, **known.subject))
