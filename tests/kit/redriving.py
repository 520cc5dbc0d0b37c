"""Makes a dead letter, and a copy of a message that is meant for one group only."""

from __future__ import annotations

from lakelog import Lakelog
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb


def bury_one(log: Lakelog, topic: str, group: str) -> None:
    """Let a group, which may be new, fail one message of the topic."""
    wish = ConsumeRequest(topic=topic, group=group, owner="ann", max_messages=1, start_from="earliest")
    (lease,) = log.group(group).consume(wish).leases
    offsets = tuple(lease.offsets())
    fail = LeaseAnswer(verb=Verb.FAIL, partition=lease.partition, token=lease.token, offsets=offsets, reason="no")
    log.group(group).answer(topic, "ann", [fail])


def redrive_one(log: Lakelog, topic: str, group: str) -> None:
    """Let a new group fail one message of the topic, and publish it again for this group."""
    bury_one(log, topic, group)
    assert log.topic(topic).dead_letters(group).redrive().redriven == 1
