"""Failures with the same cause have the same fingerprint: over line shifts, ids, numbers and host names."""

from __future__ import annotations

import time

import pytest

from lakelog.model.fingerprint import MAX_PATTERN, fingerprint_of, parse_fingerprint, show_fingerprint

_TRACEBACK = """Traceback (most recent call last):
  File "{root}/shop/billing.py", line {line}, in charge
    gateway.charge(order)
  File "{library}/site-packages/gateway/client.py", line 88, in charge
    raise Refused(order.id)
gateway.Refused: card {card}
"""


def _traceback(root: str = "/app", line: int = 12, library: str = "/venv/lib/python3.12", card: str = "1") -> str:
    return _TRACEBACK.format(root=root, line=line, library=library, card=card)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: no order 42", "ValueError: no order 1,000,007"),
        ("ValueError: no order ord_8f3a2b", "ValueError: no order ord_1c99d0"),
        ("KeyError: 'total'", "KeyError: 'sum'"),
        ('JSONDecodeError: Expecting value: "abc"', 'JSONDecodeError: Expecting value: "xyz"'),
        (
            "Gone: 9b2f1c1e-0c52-4a8e-9d4b-6f7c1b0a2d33 was deleted",
            "Gone: 0d0e7c55-1111-4a8e-9d4b-6f7c1b0a2d99 was deleted",
        ),
        ("HTTPError: GET https://a.example/x?id=1 returned 500", "HTTPError: GET http://b.example:81/y returned 500"),
        ("ConnectionError: db-eu.internal refused", "ConnectionError: db-us.internal:5432 refused"),
        ("ConnectionError: 10.0.3.17:5432 refused", "ConnectionError: 192.168.1.1:5432 refused"),
        ("ConnectionError: worker-a1 is gone", "ConnectionError: worker-zz9 is gone"),
        ("Bounced: ada@example.org is unknown", "Bounced: bob.b@mail.example.com is unknown"),
        ("TimeoutError: the handler did not end within 5 s", "TimeoutError: the handler did not end within 30.5 s"),
        ("Bad: etag 0123456789abcdef0123 differs", "Bad: etag deadbeefdeadbeefdead differs"),
        ("ValueError: two\n  lines 1", "ValueError: two lines 2"),
    ],
)
def test_what_differs_from_message_to_message_does_not_count(one: str, other: str) -> None:
    assert fingerprint_of(one) == fingerprint_of(other)
    assert str(fingerprint_of(one)) == str(fingerprint_of(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: no order 42", "KeyError: no order 42"),
        ("ValueError: no order 42", "ValueError: no customer 42"),
        ("HTTPError: GET https://a.example/x returned", "HTTPError: GET https://a.example/x timed out"),
    ],
)
def test_other_errors_have_other_fingerprints(one: str, other: str) -> None:
    assert str(fingerprint_of(one)) != str(fingerprint_of(other))


def test_the_line_the_release_and_the_library_do_not_count_and_the_function_does() -> None:
    reason = "gateway.Refused: card 17"
    first = fingerprint_of(reason, _traceback())
    assert first.frame == "shop/billing.py in charge", "the innermost frame of the application"
    assert first == fingerprint_of("gateway.Refused: card 99", _traceback(line=480, card="99"))
    assert first == fingerprint_of(reason, _traceback(root="/srv/releases/2026-11-19", library="/usr/lib/python3.13"))
    assert first != fingerprint_of(reason, _traceback().replace("in charge", "in refund"))
    assert first != fingerprint_of(reason), "without a traceback there is no frame"


def test_the_frame_is_that_of_the_error_and_not_that_of_its_cause() -> None:
    cause = _traceback().replace("billing.py", "cause.py").replace("in charge", "in parse")
    chained = f"{cause}\nDuring handling of the above exception, another exception occurred:\n\n{_traceback()}"
    assert fingerprint_of("gateway.Refused: x", chained).frame == "shop/billing.py in charge"
    only_library = 'Traceback (most recent call last):\n  File "/v/site-packages/a.py", line 1, in f\nE: x\n'
    assert fingerprint_of("E: x", only_library).frame == "site-packages/a.py in f"
    assert fingerprint_of("E: x", "no frames").frame is None


def test_the_parts_of_a_fingerprint() -> None:
    found = fingerprint_of("shop.errors.Refused: order 17 of 'ada' at https://x.example/y")
    assert (found.kind, found.pattern) == ("shop.errors.Refused", "shop.errors.Refused: order <n> of <text> at <url>")
    assert fingerprint_of("The handler returned without an answer.").kind == ""
    assert fingerprint_of("").pattern == ""
    assert len(fingerprint_of("E: " + "word " * 1000).pattern) == MAX_PATTERN


def test_the_stored_number_is_the_shown_text() -> None:
    found = fingerprint_of("ValueError: no order 42")
    assert show_fingerprint(found.number) == str(found) and len(str(found)) == 12
    assert parse_fingerprint(str(found)) == found.number < 1 << 48
    assert show_fingerprint(7) == "000000000007"


@pytest.mark.parametrize("piece", ["a.", "a-", "a1-", "'", "@a.", "9.", "://", "x@x", "a_"])
def test_a_hostile_reason_takes_little_time(piece: str) -> None:
    began = time.process_time()
    fingerprint_of(piece * 5000, f'  File "{piece * 5000}", line 1, in f')
    assert time.process_time() - began < 0.2
