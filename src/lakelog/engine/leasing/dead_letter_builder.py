"""Builds dead letters. Each holds the bytes of its message, so that retention cannot remove them."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.batches import encode
from lakelog.coordinator.leasing.operations import DeadMessage
from lakelog.engine.leasing.batch_cache import BatchCache
from lakelog.model.fingerprint import fingerprint_of
from lakelog.model.group import MAX_REASON_BYTES
from lakelog.model.topic import Topic
from lakelog.model.tracebacks import cut_traceback
from lakelog.storage.groups import NewDeadLetter


class DeadLetterBuilder:
    """Finds the messages that died, and builds their dead letters."""

    def __init__(self, batch_cache: BatchCache) -> None:
        self._batch_cache = batch_cache

    async def write(self, topic: Topic, partition: int, deaths: Sequence[DeadMessage]) -> list[NewDeadLetter]:
        offsets = sorted(death.offset for death in deaths)
        payloads: dict[int, bytes] = {}
        for piece in await self._batch_cache.pieces(topic, partition, offsets):
            batch = piece.decoded
            for offset in piece.offsets:
                payloads[offset] = encode(batch.slice(offset - piece.batch.base, 1))
        return [
            NewDeadLetter(
                offset=death.offset,
                epoch=death.epoch,
                deliveries=death.deliveries,
                failures=death.failures,
                reason=death.reason.encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore"),
                owner=death.owner,
                payload=payloads.get(death.offset),
                traceback=cut_traceback(death.traceback) or None if death.traceback else None,
                fingerprint=fingerprint_of(death.reason, death.traceback).number,
            )
            for death in deaths
        ]
