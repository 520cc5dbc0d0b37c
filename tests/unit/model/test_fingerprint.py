"""Fingerprints: the same for one cause whatever the message holds, and different for different causes."""

from __future__ import annotations

import time

import pytest

from lakelog.model.fingerprint import MAX_PATTERN, Fingerprint, fingerprint_of

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/worker.py", line 12, in handle
    charge(order)
  File "/srv/shop/billing.py", line {line}, in charge
    bank.post(order)
  File "/srv/venv/lib/python3.12/site-packages/bank/http.py", line 7, in post
    raise TimeoutError
TimeoutError
"""


@pytest.mark.parametrize(
    ("reason", "pattern"),
    [
        ("ValueError: no order 42", "ValueError: no order <n>"),
        ("ValueError: took 1.5 s of 10,000", "ValueError: took <n> s of <n>"),
        ("KeyError: 'acct_1'", "KeyError: <text>"),
        ('unknown currency "eur?" in `value.currency`', "unknown currency <text> in <text>"),
        ("the server can't tell what's wrong", "the server can't tell what's wrong"),
        ("GET https://bank.example/v1/pay?id=7 failed", "GET <url> failed"),
        ("no row 0d1b4c1e-7d5e-4a34-9a55-6f2c0b7b2a11", "no row <uuid>"),
        ("object at 0x7f3a is gone, digest 5f2c0b7b2a11d3e4", "object at <hex> is gone, digest <hex>"),
        ("two\n  lines", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_between_messages_is_replaced(reason: str, pattern: str) -> None:
    assert fingerprint_of(reason).pattern == pattern


def test_the_kind_is_the_type_of_the_error() -> None:
    assert fingerprint_of("shop.errors.Declined: card 4").kind == "shop.errors.Declined"
    assert fingerprint_of("TimeoutError").kind == "TimeoutError"
    assert fingerprint_of("no such order: 7").kind == ""


def test_the_frame_is_the_innermost_of_the_application_without_its_line() -> None:
    one, other = (fingerprint_of("TimeoutError", TRACEBACK.format(line=line)) for line in (30, 31))
    assert one == other == Fingerprint("TimeoutError", "TimeoutError", "shop/billing.py in charge")
    assert fingerprint_of("TimeoutError", "no frames here").frame is None
    library = '  File "/usr/lib/python3.12/json/decoder.py", line 5, in decode\n'
    assert fingerprint_of("x", library).frame == "json/decoder.py in decode"


def test_causes_differ_by_kind_pattern_and_place() -> None:
    causes = {
        str(fingerprint_of("ValueError: no order 1")),
        str(fingerprint_of("KeyError: no order 1")),
        str(fingerprint_of("ValueError: no account 1")),
        str(fingerprint_of("ValueError: no order 1", TRACEBACK.format(line=1))),
    }
    assert len(causes) == 4 and all(len(each) == 12 for each in causes)
    assert str(fingerprint_of("ValueError: no order 2")) in causes


def test_a_long_or_hostile_reason_is_bounded() -> None:
    began = time.process_time()
    for hostile in ("'" * 100_000, "1," * 100_000, "a:" * 100_000, "\udcff" * 5, "a" * 100_000, "f" * 100_000):
        found = fingerprint_of(hostile, hostile)
        assert len(found.pattern) <= MAX_PATTERN and len(str(found)) == 12
    assert time.process_time() - began < 1
