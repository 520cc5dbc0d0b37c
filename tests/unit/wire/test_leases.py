"""Leases as one body: what is written is read again, and nothing malformed gets through."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import InvalidBatch
from lakelog.model.ranges import from_ranges, to_ranges
from lakelog.wire.leases import LeaseHead, LeasesHead, PieceHead, read_leases, write_leases


def _lease(*sizes: int, token: int = 7) -> LeaseHead:
    pieces = [
        PieceHead(base=100 * n, count=10, appended_us=n, offsets=[(100 * n, 100 * n + 3)], size=size, whole=n % 2 == 0)
        for n, size in enumerate(sizes)
    ]
    return LeaseHead(token=token, partition=3, expires_ms=1, pieces=pieces, deliveries={2: 4}, failures={2: 1})


@given(st.lists(st.lists(st.binary(max_size=40), max_size=3), max_size=4), st.integers(0, 9) | st.none())
def test_what_is_written_is_read(payloads: list[list[bytes]], generation: int | None) -> None:
    leases = [_lease(*map(len, each), token=n) for n, each in enumerate(payloads)]
    head = LeasesHead(incarnation=12, leases=leases, generation=generation)
    flat = [payload for each in payloads for payload in each]
    body = write_leases(head, flat)
    found, read = read_leases(body)
    assert found == head
    assert [bytes(each) for each in read] == flat


def test_payloads_are_aligned() -> None:
    """Arrow wants its buffers at multiples of 8: else every payload would be copied."""
    body = write_leases(LeasesHead(incarnation=1, leases=[_lease(3, 5, 8)]), [b"abc", b"defgh", b"ijklmnop"])
    assert [body.index(text) % 8 for text in (b"abc", b"defgh", b"ijklmnop")] == [0, 0, 0]


@given(st.data())
def test_a_cut_body_is_refused(data: st.DataObject) -> None:
    body = write_leases(LeasesHead(incarnation=1, leases=[_lease(8, 8)]), [b"12345678", b"abcdefgh"])
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(InvalidBatch):
        read_leases(body[:end])


@pytest.mark.parametrize(
    "body",
    [
        b"LKF1" + bytes(4),
        b"LKL1" + struct.pack("<I", 2) + b"{}",
        b"LKL1" + struct.pack("<I", 2) + b"[[",
        b"LKL1" + struct.pack("<I", 1 << 31) + b"{}",
        write_leases(LeasesHead(incarnation=1, leases=[_lease(-8)]), [b""]),
    ],
)
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidBatch):
        read_leases(body)


@given(st.lists(st.integers(0, 60), max_size=30, unique=True))
def test_ranges_keep_the_order(offsets: list[int]) -> None:
    assert list(from_ranges(to_ranges(offsets))) == offsets


@given(st.sets(st.integers(0, 60), min_size=1))
def test_rising_offsets_need_the_fewest_ranges(offsets: set[int]) -> None:
    runs = sum(offset - 1 not in offsets for offset in offsets)
    assert len(to_ranges(sorted(offsets))) == runs


def test_the_order_is_that_of_running() -> None:
    lease = LeaseHead(token=1, partition=0, expires_ms=1, pieces=_lease(1).pieces, order=[(2, 3), (0, 1)])
    assert list(lease.offsets()) == [2, 3, 0, 1]
    assert list(_lease(1, 1).offsets()) == [0, 1, 2, 3, 100, 101, 102, 103]
