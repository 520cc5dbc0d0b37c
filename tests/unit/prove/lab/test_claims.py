"""Two faults never affect the same target."""

from __future__ import annotations

import random
import threading

import pytest

from prove.lab.claims import Busy, Claims


def test_what_is_taken_is_refused_until_it_is_free() -> None:
    claims = Claims()
    claims.take(["server0", "server1"])
    with pytest.raises(Busy, match="server1"):
        claims.take(["server1", "server2"], within=0)
    # Nothing of the refused claim was taken.
    claims.take(["server2"], within=0)
    claims.free(["server1", "server2"])
    claims.take(["server1", "server2"], within=0)


def test_one_of_many_is_one_that_is_free() -> None:
    claims, chance = Claims(), random.Random(0)
    names = ["a", "b", "c"]
    assert sorted(claims.take_one(names, chance) for _ in names) == names
    with pytest.raises(Busy, match="all taken"):
        claims.take_one(names, chance, within=0)


def test_who_waits_gets_it_when_it_is_free() -> None:
    claims = Claims()
    claims.take(["a"])
    got = threading.Event()

    def wait() -> None:
        claims.take(["a"], within=10)
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    claims.free(["a"])
    thread.join(10)
    assert got.is_set()
