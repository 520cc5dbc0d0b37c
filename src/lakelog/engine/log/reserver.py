"""Reserves idempotency keys in their home cell. Keys that arrive during a call share the next call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from lakelog.engine.coalescing import CoalescingPump
from lakelog.errors import LakelogError, OutcomeUnknown
from lakelog.storage.store import PartitionStore, Reservation

_MAX_PER_CALL = 2_000


class Reserver:
    """Makes the reservations of one cell, either durable or not."""

    def __init__(self, store: PartitionStore, *, durable: bool) -> None:
        self._store = store
        self._durable = durable
        self._waiting: list[tuple[Reservation, asyncio.Future[Reservation]]] = []
        self._pump = CoalescingPump(self._next_call)

    async def reserve(self, reservations: Sequence[Reservation]) -> list[Reservation]:
        """Return the valid reservation for each key. If a key is given twice, the first one wins."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Reservation]] = [loop.create_future() for _ in reservations]
        self._waiting.extend(zip(reservations, futures, strict=True))
        self._pump.wake()
        return list(await asyncio.gather(*futures))

    def _next_call(self) -> Coroutine[object, object, None] | None:
        taken, self._waiting = self._waiting[:_MAX_PER_CALL], self._waiting[_MAX_PER_CALL:]
        return self._call(taken) if taken else None

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
            # A lost reservation is harmless: a repeated call finds it or creates it.
            known = error if isinstance(error, LakelogError) else OutcomeUnknown(f"A reservation failed: {error!r}.")
            for _, future in taken:
                if not future.done():
                    future.set_exception(type(known)(known.detail, **known.subject))
