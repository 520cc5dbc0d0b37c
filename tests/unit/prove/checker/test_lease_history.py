"""The lease history: histories that all lease checks accept, doubtful ones, and the speed of the checks."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prove.checker.lease_history import leases_of
from prove.history.tables import OwnerVerb, TableColumns, Tables, columns
from tests.unit.prove.checker import test_l5_redelivery as test_l5
from tests.unit.prove.checker import test_s08_lease_tokens as test_s08
from tests.unit.prove.checker import test_s09_stale_answers as test_s09
from tests.unit.prove.checker import test_s12_delivery_counts as test_s12
from tests.unit.prove.checker import test_s15_key_order as test_s15
from tests.unit.prove.checker.lease_rows import (
    CHECKS,
    DIED,
    FAILED,
    FAILED_ONCE,
    GROUP,
    LOST,
    TOPIC,
    Rows,
    ack,
    acked,
    call,
    consume,
    end,
    extend,
    found,
    letter,
    lost_consume,
    nack,
    run,
    said,
    sample,
    seek,
    tables,
)

VALID: dict[str, list[Rows]] = {
    "acked": [consume(0, 1, "0 1"), ack(10, 1, 0), ack(20, 1, 1), end("kl")],
    "nacked, due, acked": [*FAILED_ONCE, acked(310, 2, 0), end()],
    "failed to death": [*DIED, end(letters=[letter(0)])],
    "fatal": [consume(0, 1, "0"), said(OwnerVerb.FAIL, 10, 1, 0, dead=(0,)), end(letters=[letter(0, 1, 1)])],
    "discarded": [consume(0, 1, "0"), said(OwnerVerb.DISCARD, 10, 1, 0), end(acked=0, discarded=1)],
    "the end of a lease": [
        consume(0, 1, "0 1"), ack(10, 1, 1), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0), end("kl"),
    ],
    "expired alone: a failure, and its back-off": [
        consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1"), ack(2210, 3, 0),
        end(),
    ],
    "died of owners that were lost": [
        consume(0, 1, "0"), consume(1000, 2, "0:2", "b", suspect=True), consume(2200, 3, "0:3:1", suspect=True),
        end(letters=[letter(0, 2, 3)]),
    ],
    "a refused ack, then another's": [
        consume(0, 1, "0"), ack(1001, 1, 0, **FAILED), consume(1002, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "a lost answer, repeated": [consume(0, 1, "0"), ack(10, 1, 0, **LOST), ack(2000, 1, 0), end()],
    "a lost answer of an ack": [consume(0, 1, "0"), ack(10, 1, 0, **LOST), end()],
    "a lost ack that did not happen": [
        consume(0, 1, "0"), ack(10, 1, 0, **LOST), consume(1000, 2, "0:2", "b"), acked(1010, 2, 0), end(),
    ],
    "a lost nack that happened": [
        FAILED_ONCE[0], nack(10, 1, 0, **LOST), FAILED_ONCE[2], acked(310, 2, 0), end(),
    ],
    "a lost consume took it once": [lost_consume(0), consume(1000, 2, "0:2:1", "b"), acked(1010, 2, 0), end()],
    "told again before its ack": [consume(0, 1, "0"), consume(5, 1, "0", granted=0), ack(10, 1, 0), end()],
    "extended": [consume(0, 1, "0"), extend(500, 1, 1500), ack(1400, 1, 0), end()],
    "a key in one lease": [consume(0, 1, "0 1"), ack(10, 1, 0), ack(20, 1, 1), end("kk")],
    "a nack gives back its key": [
        consume(0, 1, "0 1"), nack(10, 1, 0), consume(300, 2, "0:2:1 1:2", "b"), acked(310, 2, 0, 1), end("kk"),
    ],
    "a dead letter frees its key": [*DIED, consume(320, 3, "1"), ack(330, 3, 1), end("kk", letters=[letter(0)])],
    "without keys": [consume(0, 1, "0"), consume(5, 2, "1", "b"), ack(10, 1, 0), acked(20, 2, 1), end("--")],
    "again after a seek": [
        consume(0, 1, "0"), ack(5, 1, 0), seek(10), consume(20, 2, "0"), ack(30, 2, 0), end(epoch=1),
    ],
    "a seek ends leases": [
        consume(0, 1, "0"), seek(10), ack(15, 1, 0, **FAILED), consume(20, 2, "0", "b"), acked(30, 2, 0), end(epoch=1),
    ],
    "samples on the way": [
        consume(0, 1, "0 1 2"), sample(5, count=3, committed=0, acked=0, leased=3), ack(10, 1, 1),
        sample(20, count=3, committed=0, acked=1, leased=2), ack(30, 1, 0), ack(50, 1, 2),
        sample(40, took=20, count=3, committed=2, acked=2, leased=1), end("klm"),
    ],
    "a dead owner's message comes again": [
        consume(0, 1, "0 1", "z"), consume(2900, 2, "0:2"), ack(3000, 2, 0), consume(1000, 3, "1:2"), ack(1600, 3, 1),
        end("kl"),
    ],
    "a seek that was refused": [consume(0, 1, "0"), seek(5, **FAILED), ack(10, 1, 0), end()],
}  # fmt: skip


@pytest.mark.parametrize("invariant", CHECKS)
@pytest.mark.parametrize("name", VALID)
def test_a_valid_history_is_valid(name: str, invariant: str) -> None:
    assert found(invariant, VALID[name]) == []


@pytest.mark.parametrize("invariant", CHECKS)
@pytest.mark.parametrize("sought", [seek(10, **LOST), seek(18, took=5)])
def test_a_lease_in_doubt_of_its_epoch_is_unknown(sought: Rows, invariant: str) -> None:
    doubt = CHECKS[invariant].INVARIANT.doubt(tables(sought, consume(20, 1, "0"), ack(30, 1, 0), end()), run())
    assert doubt is not None and "seek" in doubt


def test_large_numbers_are_as_good_as_small_ones() -> None:
    """Tokens and offsets that do not fit into one number together."""
    modules = {"S8": test_s08, "S9": test_s09, "S12": test_s12, "S15": test_s15, "L5": test_l5}
    for invariant, module in modules.items():
        for each in (*module.BROKEN.values(), *module.VALID.values()):
            assert len(found(invariant, map(_moved, each))) == len(found(invariant, each))


def _moved(part: Rows) -> Rows:
    far = 1 << 40
    names = {"offset": 1, "start": 1, "committed": 1, "frontier": 1, "high_watermark": 1, "token": 1 << 10}
    start = {"progress": {"start": 0}, "delivery": {}, "answer": {}, "seen": {}, "dead": {}, "call": {}}
    moved = []
    for table, row in part:
        full = {**start[table], **row}
        far_row = {name: full[name] + far * names[name] for name in full if name in names and full[name] >= 0}
        moved.append((table, {**full, **far_row}))
    return moved


def test_it_is_computed_once_for_a_scope() -> None:
    made, known = tables(*VALID["acked"]), run()
    assert leases_of(made, known) is leases_of(made, known)
    assert leases_of(made, replace(known)) is not leases_of(made, known)


# How long it takes ----------------------------------------------------------------------------------------------------


def history(messages: int, *, seed: int = 1) -> Tables:
    """Return a large valid history: batches of 100 with a tenth as many keys; one message in a hundred fails once."""
    chance = np.random.default_rng(seed)
    batch = np.arange(messages) // 100
    failing = chance.random(messages) < 0.01
    again = np.flatnonzero(failing)
    offset = np.concatenate((np.arange(messages), again))
    token = np.concatenate((batch * 2 + 1, batch[again] * 2 + 2))
    at_ms = np.concatenate((batch * 1000, batch[again] * 1000 + 300))
    number = np.concatenate((np.ones(messages), np.full(len(again), 2))).astype(np.int32)
    shared = {"offset": offset, "token": token, "owner": token % 7 + 1, "process": token % 7 + 1}
    delivery = _table(
        "delivery", at_ms, **shared, number=number, failures=number - 1, lease_ms=np.full(len(token), 900)
    )
    delivery.arrays["expires_ms"] = at_ms + 900
    delivery.arrays["together"] = np.full(len(token), 100, np.int32)
    verb = np.where(np.concatenate((failing, np.zeros(len(again), np.bool_))), OwnerVerb.NACK, OwnerVerb.ACK)
    # Without order, so that what is behind a message that failed need not wait.
    answer = _table("answer", at_ms + 10, **shared, verb=verb, delay_ms=np.full(len(token), -1))
    seen = _table("seen", np.zeros(messages, np.int64), offset=np.arange(messages))
    seen.arrays["key"] = np.where(failing, 0, chance.integers(1, 10, messages) + batch * 10)
    shuffled = {each.name: each.where(chance.permutation(len(each))) for each in (delivery, answer, seen)}
    told = {**call(0), "final": True, "acked": messages, "committed": messages}
    told = {name: told[name] for name in told if name not in ("owner", "invoked_wall_ms", "completed_wall_ms")}
    row = {**told, "frontier": messages, "high_watermark": messages}
    return Tables(by_name={**shuffled, "progress": columns("progress", [row])})


def _table(name: str, at_ms: Any, **known: Any) -> TableColumns:
    made = columns(name, [])
    arrays = {each: np.zeros(len(at_ms), array.dtype) for each, array in made.arrays.items()}
    arrays |= {each: values.astype(made.arrays[each].dtype) for each, values in known.items()}
    for clock, unit in (("ns", 1_000_000), ("wall_ms", 1)):
        for when, later in ((f"invoked_{clock}", 0), (f"completed_{clock}", 1)):
            if when in arrays:
                arrays[when] = (at_ms + later) * unit
    for each, value in (("topic", TOPIC), ("group", GROUP)):
        if each in arrays:
            arrays[each][:] = value
    return TableColumns(name, arrays)


@pytest.mark.parametrize("invariant", CHECKS)
def test_a_large_history_is_valid(invariant: str) -> None:
    made, known = history(20_000), run()
    assert CHECKS[invariant].INVARIANT.check(made, known) == []


def test_all_together_are_quick() -> None:
    """The limit is far below the budget of 5 µs per row, so that a loop over all rows would fail."""
    made, known = history(100_000), run()
    rows = sum(map(len, made.by_name.values()))
    began = time.process_time()
    for each in CHECKS.values():
        each.INVARIANT.check(made, known)
    assert time.process_time() - began < 5e-6 * rows
