"""Division of a run into scopes, and placement of attempts of unknown outcome."""

from __future__ import annotations

from typing import Any

from prove.checker.invariant import CheckScope
from prove.checker.scopes import instances, placed
from prove.history.tables import CallOutcome, OwnerVerb, ReaderKind, TableColumns, Tables, columns

Row = dict[str, Any]


def tables(**rows: list[Row]) -> Tables:
    return Tables(by_name={name: columns(name, those) for name, those in rows.items()})


def attempts(*rows: Row) -> TableColumns:
    found = [{"topic": 1, "counter": number, **row} for number, row in enumerate(rows)]
    final = [{"topic": 1, "partition": 3, "offset": 7, "hash": 50, "reader": ReaderKind.FINAL}]
    final += [{"topic": 2, "partition": 0, "offset": 1, "hash": 60, "reader": ReaderKind.FINAL}]
    final += [{"topic": 1, "partition": 0, "offset": 1, "hash": 70, "reader": ReaderKind.FETCH}]
    return placed(tables(attempt=found, seen=final))["attempt"]


def test_an_attempt_of_unknown_outcome_stands_where_the_final_read_has_its_value() -> None:
    found = attempts(
        {"hash": 50, "outcome": CallOutcome.INFO},
        {"hash": 50, "outcome": CallOutcome.FAIL},
        {"hash": 50, "outcome": CallOutcome.OK, "partition": 9, "offset": 9},
        {"hash": 60, "outcome": CallOutcome.INFO},
        {"hash": 70, "outcome": CallOutcome.INFO},
        {"hash": 80, "outcome": CallOutcome.INFO},
    )
    assert found.partition.tolist() == [3, -1, 9, -1, -1, -1]
    assert found.offset.tolist() == [7, -1, 9, -1, -1, -1]


def test_attempts_know_their_likes_of_the_same_topic() -> None:
    found = attempts(
        {"hash": 1, "identity": 10},
        {"hash": 2, "identity": 10},
        {"hash": 3},
        {"hash": 3},
        {"hash": 4},
        {"hash": 5, "identity": 20},
        {"hash": 6, "identity": 20, "topic": 2},
    )
    assert found.shared.tolist() == [True, True, True, True, False, False, False]


def test_a_scope_of_a_partition_has_what_is_of_that_partition() -> None:
    run = tables(
        attempt=[{"topic": 1, "partition": at, "offset": 5} for at in (0, 1, -1)],
        seen=[{"topic": 1, "partition": 1, "reader": reader} for reader in ReaderKind],
        read=[{"topic": 2, "partition": 1}],
        segment=[{"topic": 1, "partition": 1}],
    )
    logs = {(_place(part)): part for part in instances(CheckScope.LOG, run)}
    assert set(logs) == {(1, 0), (1, 1), (2, 1)}
    assert len(logs[1, 1]["attempt"]) == 1 and len(logs[1, 1]["seen"]) == len(ReaderKind)
    cold = {(_place(part)): part for part in instances(CheckScope.COLD, run)}
    assert set(cold) == {(1, 1), (2, 1)}
    assert sorted(cold[1, 1]["seen"].reader.tolist()) == [ReaderKind.FINAL, ReaderKind.COLD]


def _place(part: Tables) -> tuple[int, int]:
    some = next(iter(part.by_name.values()))
    return int(some.topic[0]), int(some.partition[0])


def test_a_group_that_took_nothing_of_a_partition_is_judged_there_too() -> None:
    final = {"reader": ReaderKind.FINAL, "topic": 1}
    run = tables(
        delivery=[{"topic": 1, "group": 8, "partition": 0, "offset": 0}],
        seen=[{**final, "partition": at} for at in (0, 1)],
        call=[
            {"topic": 1, "group": 8, "verb": OwnerVerb.SEEK},
            {"topic": 1, "group": 8, "verb": OwnerVerb.CONSUME, "outcome": CallOutcome.INFO},
            {"topic": 1, "group": 8, "verb": OwnerVerb.CONSUME, "outcome": CallOutcome.OK, "completed_ns": 5},
            {
                "topic": 1,
                "group": 8,
                "verb": OwnerVerb.CONSUME,
                "outcome": CallOutcome.OK,
                "completed_ns": 9_500_000_000,
            },
            {"topic": 1, "group": 8, "verb": OwnerVerb.SEEK, "partition": 1},
        ],
        cut=[{"topic": 1, "partition": 1, "group": 0, "end": 3}, {"topic": 1, "partition": 1, "group": 8, "end": 4}],
    )
    one, other = instances(CheckScope.LEASE, run)
    assert (len(one["delivery"]), len(one["seen"]), len(one["cut"])) == (1, 1, 0)
    assert (len(other["delivery"]), len(other["seen"]), len(other["cut"])) == (0, 1, 2)
    # A consume that was answered at once has told all that it leased.
    assert (len(one["call"]), len(other["call"])) == (3, 4)


def test_a_group_of_members_that_never_leased_is_a_reader() -> None:
    run = tables(
        member=[{"topic": 1, "group": 8}],
        progress=[{"topic": 1, "group": 8, "partition": 0}, {"topic": 1, "group": 9, "partition": 0}],
    )
    (part,) = instances(CheckScope.LEASE, run)
    assert part["progress"].group.tolist() == [9]


def test_a_replay_is_beside_what_the_final_read_has_of_the_same() -> None:
    seen = [{"topic": 1, "partition": 0, "offset": at, "reader": ReaderKind.FINAL} for at in range(10)]
    seen += [{"topic": 1, "partition": 0, "offset": at, "reader": ReaderKind.REPLAY, "group": 8} for at in (3, 5)]
    run = tables(seen=seen, member=[{"topic": 1, "group": 9}])
    found = {len(part["member"]): part["seen"] for part in instances(CheckScope.GROUP, run)}
    assert len(found[1]) == 0
    final = found[0].where(found[0].reader == ReaderKind.FINAL)
    assert final.offset.tolist() == [3, 4, 5] and len(found[0]) == 5


def test_producers_see_the_ends_of_all_partitions() -> None:
    run = tables(
        attempt=[{"process": process} for process in (4, 4, 5)],
        read=[{"partition": 0, "reader": ReaderKind.FINAL}, {"partition": 1, "reader": ReaderKind.FETCH}],
    )
    assert [(len(part["attempt"]), len(part["read"])) for part in instances(CheckScope.PRODUCER, run)] == [
        (2, 1),
        (1, 1),
    ]


def test_copies_of_redriven_messages_are_with_their_value_and_identities_apart() -> None:
    run = tables(
        attempt=[{"topic": 1, "hash": 5}, {"topic": 2, "hash": 5, "identity": 6}],
        dead=[{"topic": 1, "copy_topic": 2, "copy_hash": 5, "redriven": 1}, {"topic": 1}],
    )
    assert [(len(part["attempt"]), len(part["dead"])) for part in instances(CheckScope.VALUE, run)] == [(1, 0), (1, 1)]
    assert [part["attempt"].topic.tolist() for part in instances(CheckScope.IDENTITY, run)] == [[2]]
