"""Between what the engine gives about dead letters and the client's values."""

from __future__ import annotations

from lakelog.client import group_values as values
from lakelog.engine.groups.redrive import DeadLetter
from lakelog.model.times import to_time


def letter_of(letter: DeadLetter) -> values.DeadLetter:
    message = letter.message
    return values.DeadLetter(
        id=letter.id,
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        error=letter.error,
        deliveries=letter.deliveries,
        failures=letter.failures,
        at=to_time(letter.at_ms),
        owner=letter.owner,
        state=letter.state.value,
        key=message.key if message else None,
        raw=message.value if message else None,
        headers=(message.headers if message else None) or {},
        content_type=message.content_type if message else None,
        correlation_id=message.correlation_id if message else None,
        created_at=message.created_at if message else None,
        epoch=letter.epoch,
        lineage=letter.lineage,
        redriven_to=letter.redriven_to,
        traceback=letter.traceback,
    )
