"""Journals of earlier formats are read: what was written by them is here as bytes."""

from __future__ import annotations

import base64

import msgspec

from lakelog.coordinator.leasing.codec import decode_state, decode_summary, encode_state, replay
from lakelog.coordinator.leasing.operations import Accepted
from lakelog.coordinator.leasing.state import FinishedCounts, WaitingMessage
from tests.unit.coordinator.lease_partition import NOW, Partition, acks

# Format 1: ann got 0 to 3, acked 0 and 1, and nacked 2. bob got 4, 7 and 10, and extended. cyd got 11 to 13, and acked
# them. dan got 14. Message 9 is filtered, 3 expires. The snapshots are from after the first step and after the last.
FIRST = base64.b64decode("nQEABAAAziAAAAGRms4gAAABo2FubqDOAA9CQM4AD7dwwsKUkgBhkgFikgJhkgNjgMKQkJCRkgPOAB6EgJYAAAAAAACQ")
COMMITS = [
    base64.b64decode("lAHOAA9CQJGUA84gAAABAZIAApkABAICAADOAA+3cMDC"),
    base64.b64decode(
        "lAHOAA9CQJKaAc4gAAACo2JvYqNyLTHOAA+3cJYEBQcICgvEDGQAAABiAAAAAAAAAMLCkJYCC5KTYQUGkmMIAQCQmQALAgUAA84AD7dwwMI="
    ),
    base64.b64decode("lAHOAA9CQJGVBM4gAAABA5QCzgAPRigBAJCZAAsCBAEDzgAPt3DOAA9GKMI="),
    base64.b64decode("lAHOAA9ENJGaAc4gAAADo2N5ZKDOAA+5ZJILDsQAwsKQmQAOAgcBA84AD7lkzgAPRijC"),
    base64.b64decode("lAHOAA9ENJGUA84gAAADAZILDpkADgIEAQPOAA+3cM4AD0Yowg=="),
    base64.b64decode("lAHOAA9ENJGVBs4gAAACzgAQLpTCwpkADgIEAQPOABAulM4AD0Yowg=="),
    base64.b64decode("lAHOAA9ENJKaAc4gAAAEo2RhbqDOAA+5ZJIOD8QEZQAAAMLCkJILBJkADwIFAQPOABAulM4AD0Yowg=="),
]
LAST = base64.b64decode(
    "nQEADwAEziAAAASTms4gAAABo2FubqDOAA9CQM4AD7dwwsKRkgNjggGSAAIDkgIDwprOIAAAAqNib2Kjci0xzgAPQkDOABAulMLC"
    "k5IEZJIHYpIKAIDCms4gAAAEo2RhbqDOAA9ENM4AD7lkwsKRkg5lgMKRkwLOAA9GKGGSkmGSBQaSY5EIkZQCAQHCkZIDzgAehICW"
    "BQAAAQAAkZTOIAAAA6NjeWTOAA9ENIEBkgsO"
)


def continued(partition: Partition) -> None:
    """Open leases continue, and closed leases are recognised."""
    bob, cyd, dan = ((2 << 28) + number for number in (2, 3, 4))
    assert partition.do(acks(cyd, 11, 12, 13, owner="cyd")) == Accepted()
    assert partition.do(acks(bob, 4, 7, 10, owner="bob")) == Accepted()
    assert partition.do(acks(dan, 14, owner="dan")) == Accepted()
    assert partition.refusal(acks(2 << 28, 0)) == "lease_lost"
    partition.state.closed.forget([bob], [])
    assert partition.do(acks(bob, 4, 7, 10, owner="bob")) == Accepted()


def test_a_snapshot_of_format_1_is_read() -> None:
    partition = Partition("abacdaabcd----ee")
    partition.now = NOW + 500
    partition.state = state = decode_state(LAST)
    assert (state.frontier, state.generation, state.last_token) == (15, 4, (2 << 28) + 4)
    assert {token - (2 << 28): list(lease.open) for token, lease in state.leases.items()} == {
        1: [3],
        2: [4, 7, 10],
        4: [14],
    }
    assert (state.waiting, state.skipped) == (
        {2: WaitingMessage(NOW + 1000, ord("a"))},
        {ord("a"): [5, 6], ord("c"): [8]},
    )
    assert (state.counts, state.failures(2), state.expires) == (
        FinishedCounts(acked=5, filtered=1),
        1,
        {3: NOW + 10**6},
    )
    assert encode_state(decode_state(encode_state(state))) == encode_state(state)
    continued(partition)


def test_a_snapshot_from_before_repeated_requests_were_noted_is_read() -> None:
    parts = msgspec.msgpack.decode(LAST, strict=False)
    parts[6] = [lease[:-1] for lease in parts[6]]
    assert encode_state(decode_state(msgspec.msgpack.encode(parts))) == encode_state(decode_state(LAST))


def test_commits_of_format_1_are_replayed() -> None:
    partition = Partition("abacdaabcd----ee")
    partition.now = NOW + 500
    partition.state = decode_state(FIRST)
    for body in COMMITS:
        replay(partition.state, body)
    then = decode_state(LAST)
    then.first_token = partition.state.first_token
    assert encode_state(partition.state) == encode_state(then)
    figures = decode_summary(COMMITS[-1])
    assert figures is not None and (figures.frontier, figures.leased, figures.skipped) == (15, 5, 3)
    continued(partition)
