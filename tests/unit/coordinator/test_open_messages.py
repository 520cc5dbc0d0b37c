"""The open messages of a lease are what a dict of offsets and keys would be, whatever is taken out of them."""

from __future__ import annotations

import random

import pytest

from lakelog.coordinator.leasing.events import in_ranges, pack_keys, to_ranges, unpack_keys
from lakelog.coordinator.leasing.open_messages import OpenMessages
from tests.unit.coordinator.lease_partition import Partition


@pytest.mark.parametrize("seed", range(100))
def test_taking_messages_out_does_what_a_dict_does(seed: int) -> None:
    rng = random.Random(seed)
    count, gap = rng.randint(1, 40), rng.choice((1, 1, 3))
    offsets = sorted(rng.sample(range(100, 100 + count * gap), count))
    known = rng.choice(([0], range(1, 4), range(4), range(1, 10**6)))
    keys = [rng.choice(known) for _ in offsets]
    model = dict(zip(offsets, keys, strict=True))
    found = OpenMessages(to_ranges(offsets), unpack_keys(pack_keys(keys)))
    while model:
        assert dict(found.items()) == model == dict(found), "the same messages, and their keys"
        assert list(found) == list(model) and len(found) == len(model)
        assert found.unique == set(model.values()) - {0}
        assert [offset in found for offset in range(95, 225)] == [offset in model for offset in range(95, 225)]
        for key in found.unique:
            assert found.is_one_each or found.of_key(key) == list(model.values()).count(key)
        assert not found.is_one_each or len(found.unique) == len([key for key in model.values() if key])
        if rng.random() < 0.1:
            assert set(found.take_all()) == set(model.values()) - {0}
            model.clear()
            break
        first, end = rng.choice([(first, end) for first in model for end in range(first + 1, first + 6)])
        if all(offset in model for offset in range(first, end)):
            before = set(model.values())
            for offset in range(first, end):
                del model[offset]
            assert set(found.take(first, end)) - {0} == before - set(model.values()) - {0}
    assert len(found) == 0 and list(found) == found.ranges == []


def test_consecutive_messages_are_granted_as_a_range() -> None:
    partition = Partition("abcabd")
    assert partition.take(2).offsets == range(2)
    got = partition.take(3, owner="bob")
    assert list(got.offsets) == [2, 5], "3 and 4 are of blocked keys"
    assert not in_ranges(partition.state.leases[got.token].open.ranges, 3)
