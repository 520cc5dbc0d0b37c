"""A batch of the batch cache: what is decoded of it, and when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import takewhile

import pytest

from lakelog.batches import decode, encode, from_messages, key_hashes
from lakelog.coordinator.leasing.operations import ExclusionReason
from lakelog.engine.leasing import cached_batch as module
from lakelog.engine.leasing.cached_batch import CachedBatch
from lakelog.model.message import Message
from lakelog.storage.store import HotBatch

AT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def hot(messages: list[Message], base: int = 100) -> HotBatch:
    payload = encode(from_messages(messages))
    return HotBatch(base=base, count=len(messages), appended_at=AT, epoch=0, bytes_end=0, payload=payload)


def messages(count: int) -> list[Message]:
    return [
        Message(value=b"value %d " % number * 20, key=b"key %d" % number if number % 3 else None)
        for number in range(count)
    ]


def _excluded(cached: CachedBatch, group: str) -> Mapping[int, ExclusionReason]:
    exclusions = cached.exclusions(group, None)
    assert exclusions is not None and exclusions.is_complete
    return exclusions.excluded


@pytest.mark.parametrize("count", [1, 20, 500])
def test_keys_are_those_of_the_whole_batch(count: int) -> None:
    batch = hot(messages(count))
    assert list(CachedBatch(batch, 0).keys) == key_hashes(decode(batch.payload))
    without = hot([Message(value=b"v")] * count)
    assert list(CachedBatch(without, 0).keys) == [0] * count


@pytest.mark.parametrize("count", [3, 500])
def test_times_of_expiry_and_target_groups_are_found_by_offset(count: int) -> None:
    some = messages(count)
    some[1] = Message(value=b"v", expires_at=AT)
    some[2] = Message(value=b"v", target_group="billing")
    cached = CachedBatch(hot(some), 0)
    assert cached.expires == {101: 1_767_268_800_123}
    assert cached.targets == {102: "billing"} and _excluded(cached, "billing") == {}
    assert _excluded(cached, "audit") == {102: ExclusionReason.FILTERED}


@pytest.mark.parametrize("count", [1, 20, 500])
def test_the_size_is_that_of_the_decoded_batch(count: int) -> None:
    batch = hot(messages(count))
    decoded = decode(batch.payload)
    padding = 64 * len(decoded.columns) * 3
    assert 0 <= CachedBatch(batch, 0).size - module._OVERHEAD_BYTES - decoded.nbytes <= padding


def test_a_batch_is_decoded_once_and_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(payload: bytes) -> object:
        calls.append(payload)
        return decode(payload)

    monkeypatch.setattr(module, "decode", counted)
    cached = CachedBatch(hot(messages(500)), 0)
    assert calls == []
    assert cached.batch is cached.batch and len(calls) == 1


@pytest.mark.parametrize(("excluded", "stored"), [(20, module.MAX_EXCLUDED_PER_MESSAGE + 1), (1, module.MAX_FILTERS)])
def test_a_batch_stores_exclusions_for_a_limited_number_of_groups(excluded: int, stored: int) -> None:
    """Any number of groups with filters may read a topic. Those that were not used for long are evaluated again."""
    some = [Message(value=b"v", target_group="billing") for _ in range(excluded)]
    cached = CachedBatch(hot(some + messages(20 - excluded)), 0)
    groups = [f"group-{number}" for number in range(100)]
    first = {group: cached.exclusions(group, None) for group in groups}
    assert all(cached.exclusions(groups[-1], None) is first[groups[-1]] for _ in range(3))
    kept = list(takewhile(lambda group: cached.exclusions(group, None) is first[group], reversed(groups)))
    assert len(kept) == stored
    assert _excluded(cached, groups[0]) == dict.fromkeys(range(100, 100 + excluded), ExclusionReason.FILTERED)
