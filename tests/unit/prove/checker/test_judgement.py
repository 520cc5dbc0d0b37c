"""Verdicts: an incomplete or doubtful history is never called valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from prove.check_command import as_json, overall, show
from prove.checker.catalog import INVARIANTS, NAMES
from prove.checker.invariant import MOST, CheckScope, Invariant, RunInfo, Violation, rows_of
from prove.checker.judgement import CheckVerdict, assert_valid, judge, judge_tables
from prove.history.loading import HISTORY
from prove.history.synthetic import describe, make_partition
from prove.history.tables import Tables, columns

PLACE = {"topic": 1, "partition": 0}
TABLES = Tables(by_name={"seen": columns("seen", [PLACE, {**PLACE, "partition": 1}]), "read": columns("read", [PLACE])})


def wrong(tables: Tables, run: RunInfo) -> list[Violation]:
    """Return a violation for every observation."""
    return [Violation(invariant="S99", what=f"partition {part} is there") for part in tables["seen"].partition]


def fine(tables: Tables, run: RunInfo) -> list[Violation]:
    return []


def broken(tables: Tables, run: RunInfo) -> list[Violation]:
    raise ZeroDivisionError("never mind")


def in_doubt(tables: Tables, run: RunInfo) -> str | None:
    return "a seek of unknown outcome" if tables["seen"].partition[0] == 0 else None


def test_all_invariants_are_in_the_catalog() -> None:
    assert [*NAMES] == [*(f"S{number}" for number in range(1, 25)), *(f"L{number}" for number in range(1, 10))]
    assert all(each.says for each in INVARIANTS)


def test_each_instance_is_judged_and_the_rows_are_counted() -> None:
    invariant = Invariant(name="S99", says="", scope=CheckScope.LOG, check=wrong)
    judgement = judge_tables(TABLES, RunInfo(), invariants=[invariant])["S99"]
    assert judgement.verdict is CheckVerdict.INVALID
    assert [each.what for each in judgement.violations] == ["partition 0 is there", "partition 1 is there"]
    assert judgement.rows == 3


def test_rows_that_it_is_not_about_do_not_touch_it() -> None:
    invariant = Invariant(name="S99", says="", scope=CheckScope.LOG, check=fine, about=rows_of("attempt"))
    assert judge_tables(TABLES, RunInfo(), invariants=[invariant])["S99"].rows == 0


def test_parts_of_one_invariant_are_one_judgement() -> None:
    parts = [Invariant(name="S99", says="", scope=scope, check=check) for scope, check in PARTS]
    judgement = judge_tables(TABLES, RunInfo(), invariants=parts)["S99"]
    assert (judgement.verdict, len(judgement.violations), judgement.rows) == (CheckVerdict.INVALID, 2, 6)


PARTS = ((CheckScope.LOG, fine), (CheckScope.COLD, wrong))


def test_not_more_counter_examples_than_help() -> None:
    many = Tables(by_name={"seen": columns("seen", [{"topic": 1, "partition": part} for part in range(2 * MOST)])})
    invariant = Invariant(name="S99", says="", scope=CheckScope.LOG, check=wrong)
    assert len(judge_tables(many, RunInfo(), invariants=[invariant])["S99"].violations) == MOST


@pytest.mark.parametrize("check", [fine, wrong])
def test_a_history_that_was_cut_is_unknown_whatever_it_looks_like(check: object) -> None:
    invariant = Invariant(name="S99", says="", scope=CheckScope.LOG, check=check)  # type: ignore[arg-type]
    judgement = judge_tables(TABLES, RunInfo(), cut=["p1: its history is missing"], invariants=[invariant])["S99"]
    assert judgement.verdict is CheckVerdict.UNKNOWN
    assert judgement.doubts == ("p1: its history is missing",)
    assert len(judgement.violations) == (2 if check is wrong else 0)


def test_a_doubt_is_about_its_own_instance() -> None:
    right = Invariant(name="S98", says="", scope=CheckScope.LOG, check=fine, doubt=in_doubt)
    judged = judge_tables(TABLES, RunInfo(), invariants=[right])["S98"]
    assert (judged.verdict, judged.doubts) == (CheckVerdict.UNKNOWN, ("a seek of unknown outcome",))
    invariant = Invariant(name="S99", says="", scope=CheckScope.LOG, check=wrong, doubt=in_doubt)
    judged = judge_tables(TABLES, RunInfo(), invariants=[invariant])["S99"]
    # Partition 1 is without doubt wrong.
    assert judged.verdict is CheckVerdict.INVALID and judged.violations[0].what == "partition 1 is there"


def test_a_check_that_fails_proves_nothing() -> None:
    judged = judge_tables(
        TABLES, RunInfo(), invariants=[Invariant(name="S99", says="", scope=CheckScope.LOG, check=broken)]
    )
    assert judged["S99"].verdict is CheckVerdict.UNKNOWN
    assert "ZeroDivisionError" in judged["S99"].doubts[0]
    with pytest.raises(AssertionError, match="S99 unknown"):
        assert_valid(judged)


def test_nothing_at_all_is_looked_at_and_found_valid() -> None:
    judged = judge_tables(Tables(by_name={}), RunInfo())
    assert {each.verdict for each in judged.values()} == {CheckVerdict.VALID}
    assert overall({}) is CheckVerdict.UNKNOWN


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / HISTORY).mkdir()
    found = [make_partition(folder, number, 12_000) for number in range(2)]
    describe(folder, [name for names, _ in found for name in names], found[0][1])
    return folder


def test_a_run_that_is_as_promised_is_valid(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = judge(made)
    assert_valid(judged)
    assert judged["S8"].rows > 20_000
    show(judged, seconds=1.0)
    assert "S24" in capsys.readouterr().out
    # It has no files and no canary: nothing was proved about those.
    assert (judged["S20"].rows, judged["S24"].rows) == (0, 0)
    assert as_json(judged).startswith('{"verdict":"valid"')


def test_a_run_without_its_truth_is_unknown(made: Path, tmp_path: Path) -> None:
    (tmp_path / HISTORY).symlink_to(made / HISTORY)
    (tmp_path / "run.json").write_bytes((made / "run.json").read_bytes())
    judged = judge(tmp_path)
    assert overall(judged) is CheckVerdict.UNKNOWN
    assert {each.verdict for each in judged.values()} == {CheckVerdict.UNKNOWN}
