"""S16 for programs of cursor groups: no message is lost, and a message is repeated only as the commit mode allows.

A program has a partition until it dies, loses the partition or leaves: its *end*. A message that it got is repeated by
the next program if its position was not committed. The check allows that in these cases:

- always: no commit above the message was accepted before the next program got the partition;
- immediate: the program had made no successful call after the call that returned the message;
- interval: its end came at most one interval after it was done with the message, and the time of one commit;
- rolling: its end came at most one interval, and the pause between two rounds, after it got the message;
- manual: nothing more.

A program is done with a message when it makes its next call, or in the manual mode when it commits it. The last time
that a message is delivered, the program must be done with it before its end; otherwise the message is lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from prove.checker.enum_codes import MEMBERSHIP, OUTCOME, READER
from prove.checker.invariant import MOST, RunInfo, Violation
from prove.checker.row_matching import Array, true_at
from prove.checker.timing import SECOND
from prove.checker.violation_text import call
from prove.history.tables import TableColumns, Tables, text_id

NAME = "S16"
NEVER = 1 << 62
SLACK_NS = 3 * SECOND
"""Time in which a process may not run on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class CommitRule:
    """How the programs of a group commit."""

    mode: str
    interval_ns: int


@dataclass(kw_only=True)
class RepeatFigures:
    """The repeats of a group, and what contradicts its commit mode."""

    group: str
    mode: str
    messages: int = 0
    returned: int = 0
    repeated: int = 0
    most_at_once: int = 0
    """The largest number of messages that were repeated after one end of a program."""
    lost: int = 0
    violations: list[Violation] = field(default_factory=list)


def judge_repeats(tables: Tables, run: RunInfo, rules: Mapping[str, CommitRule]) -> list[RepeatFigures]:
    """Judge all groups. `rules` has the commit mode of each cursor group."""
    found = []
    for group, rule in rules.items():
        judge = _GroupJudge(tables, run, group, rule)
        judge.check()
        found.append(judge.figures)
    return found


@dataclass(kw_only=True)
class _Program:
    """The times of one program: its calls, its commits, and its end."""

    asked: list[int] = field(default_factory=list)
    """When it called for messages."""
    returned: list[int] = field(default_factory=list)
    """When a call was successful, in the order of the calls; `NEVER` for others."""
    commits: dict[int, list[tuple[int, int, int, bool]]] = field(default_factory=dict)
    """By partition: when a commit began and ended, its position, and whether it was accepted."""
    ended: dict[int, list[int]] = field(default_factory=dict)
    """By partition: when it learnt that the partition is gone."""
    dead_ns: int = NEVER
    slowest_commit: int = 0

    def done_ns(self, got_ns: int) -> int:
        """Return when the program was done with the messages that it got at this time; `NEVER` if it never was."""
        at = bisect_right(self.asked, got_ns)
        return self.asked[at] if at < len(self.asked) else NEVER

    def next_ok_ns(self, got_ns: int) -> int:
        """Return when the first successful call after this time ended."""
        return min(self.returned[bisect_right(self.asked, got_ns) :], default=NEVER)


class _GroupJudge:
    """Judges one group."""

    def __init__(self, tables: Tables, run: RunInfo, group: str, rule: CommitRule) -> None:
        self._run, self._rule = run, rule
        number = text_id(group)
        member, seen = tables["member"], tables["seen"]
        self._member = member.where(member.group == number)
        self._seen = seen.where((seen.reader == READER.REPLAY) & (seen.group == number))
        self._final = seen.where(seen.reader == READER.FINAL)
        self._reads = tables["read"]
        progress = tables["progress"]
        self._progress = progress.where((progress.group == number) & progress.final)
        self.figures = RepeatFigures(group=group, mode=rule.mode)
        self._programs = self._find_programs(tables)
        self._owners = self._find_owners()
        self._accepted = {number: self._commits_of(number) for number in np.unique(self._member.partition).tolist()}

    def check(self) -> None:
        figures = self.figures
        figures.messages, figures.returned = len(self._final), len(self._seen)
        ends: dict[tuple[int, int, int], int] = {}
        for partition in np.unique(self._final.partition).tolist():
            rows = self._seen.where(self._seen.partition == partition).sorted_by("offset", "completed_ns")
            log = np.unique(self._final.offset[self._final.partition == partition])
            # A group that was not drained may still get the rest.
            log = log[log < self._progress.committed[self._progress.partition == partition].max(initial=0)]
            self._lost(partition, rows, log)
            for first in true_at(rows.offset[1:] == rows.offset[:-1]).tolist():
                end = self._end_ns(rows, first)
                key = (int(rows.process[first]), partition, end)
                ends[key] = ends.get(key, 0) + 1
                self._repeated(rows, first, end)
        figures.repeated, figures.most_at_once = sum(ends.values()), max(ends.values(), default=0)
        self._falling()

    # Facts ------------------------------------------------------------------------------------------------------------

    def _find_programs(self, tables: Tables) -> dict[int, _Program]:
        found = {int(process): _Program() for process in np.unique(self._member.process)}
        self._add_calls(found)
        for row in _rows(self._member.sorted_by("invoked_ns")):
            program = found[row.process]
            if row.event == MEMBERSHIP.COMMIT:
                ended = row.completed_ns or NEVER
                is_ok = row.outcome == OUTCOME.OK
                program.commits.setdefault(row.partition, []).append((row.invoked_ns, ended, row.offset, is_ok))
                if is_ok:
                    program.slowest_commit = max(program.slowest_commit, ended - row.invoked_ns)
            elif row.event == MEMBERSHIP.REVOKED:
                program.ended.setdefault(row.partition, []).append(row.completed_ns)
            elif row.event == MEMBERSHIP.LEAVE:
                program.dead_ns = min(program.dead_ns, row.invoked_ns)
        self._add_deaths(tables, found)
        return found

    def _add_calls(self, programs: dict[int, _Program]) -> None:
        reads = self._reads
        mine = np.isin(reads.process, np.fromiter(programs, np.int64, len(programs)))
        calls = reads.where(mine & (reads.partition < 0)).sorted_by("invoked_ns")
        for process, asked, told, outcome in zip(
            calls.process.tolist(),
            calls.invoked_ns.tolist(),
            calls.completed_ns.tolist(),
            calls.outcome.tolist(),
            strict=True,
        ):
            programs[process].asked.append(asked)
            programs[process].returned.append(told if outcome == OUTCOME.OK and told else NEVER)

    def _add_deaths(self, tables: Tables, programs: dict[int, _Program]) -> None:
        """Set the time of the last line of each killed program."""
        for process in programs.keys() & self._run.crashed:
            last = [
                int(times[table.process == process].max(initial=0))
                for table in (tables["read"], self._member)
                for times in (table.invoked_ns, table.completed_ns)
            ]
            programs[process].dead_ns = min(programs[process].dead_ns, max(last))

    def _commits_of(self, partition: int) -> tuple[Array, Array]:
        """Return the times of accepted commits of a partition, and the highest position until each."""
        rows = self._member
        is_meant = (rows.event == MEMBERSHIP.COMMIT) & (rows.outcome == OUTCOME.OK) & (rows.partition == partition)
        mine = rows.where(is_meant).sorted_by("completed_ns")
        return mine.completed_ns, np.maximum.accumulate(mine.offset)

    def _find_owners(self) -> dict[int, list[tuple[int, int]]]:
        """Return the times at which programs got each partition, with the programs."""
        rows = self._member
        given = rows.where((rows.event == MEMBERSHIP.ASSIGNED) & (rows.outcome == OUTCOME.OK)).sorted_by("completed_ns")
        found: dict[int, list[tuple[int, int]]] = {}
        for partition, at, process in zip(
            given.partition.tolist(), given.completed_ns.tolist(), given.process.tolist(), strict=True
        ):
            found.setdefault(partition, []).append((at, process))
        return found

    def _end_ns(self, rows: TableColumns, row: int) -> int:
        """Return when the program that got this message lost the partition."""
        process, partition, got = int(rows.process[row]), int(rows.partition[row]), int(rows.completed_ns[row])
        program = self._programs[process]
        gone = [at for at in program.ended.get(partition, ()) if at >= got]
        owners = self._owners.get(partition, [])
        later = [at for at, other in owners[bisect_right(owners, (got, NEVER)) :] if other != process]
        return min([program.dead_ns, *gone[:1], *later[:1]])

    # Checks -----------------------------------------------------------------------------------------------------------

    def _lost(self, partition: int, rows: TableColumns, log: Array) -> None:
        """Find messages that no program was done with."""
        got = zip(rows.process.tolist(), rows.completed_ns.tolist(), rows.offset.tolist(), strict=True)
        done = np.fromiter(
            (
                self._is_done(process, at) or self._is_named(process, partition, offset, at)
                for process, at, offset in got
            ),
            np.bool_,
            len(rows),
        )
        lost = np.setdiff1d(log, rows.offset[done])
        self.figures.lost += len(lost)
        for offset in lost[:MOST].tolist():
            self._wrong(partition, offset, "no program was ever done with it, and the group is past it")

    def _is_done(self, process: int, got_ns: int) -> bool:
        """Return whether a program was done with the messages that it got at this time: it called again, or left."""
        has_left = process not in self._run.crashed and self._programs[process].dead_ns < NEVER
        return has_left or self._programs[process].done_ns(got_ns) < NEVER

    def _is_named(self, process: int, partition: int, offset: int, got_ns: int) -> bool:
        """Return whether a program committed a message itself, after it got it. Other modes commit without a call."""
        commits = self._programs[process].commits.get(partition, ())
        return self._rule.mode == "manual" and any(began >= got_ns and end > offset for began, _, end, _ in commits)

    def _repeated(self, rows: TableColumns, first: int, end: int) -> None:
        """Check that a message may be returned again."""
        second = first + 1
        partition, offset = int(rows.partition[first]), int(rows.offset[first])
        calls = [call(self._run, rows, row) for row in (first, second)]
        program = self._programs[int(rows.process[first])]
        got, again = int(rows.completed_ns[first]), int(rows.completed_ns[second])
        what: str | None
        if end > again:
            what = "was returned twice, although the first program kept the partition"
        elif self._is_committed(partition, offset, self._tenure_ns(rows, second)):
            what = "was returned again after a commit above it"
        else:
            what = self._late(program, partition, got, end)
        if what is not None:
            self._wrong(partition, offset, what, *calls)

    def _tenure_ns(self, rows: TableColumns, row: int) -> int:
        """Return when the program of this row last got the partition."""
        process, at = int(rows.process[row]), int(rows.completed_ns[row])
        owners = self._owners.get(int(rows.partition[row]), [])
        mine = [since for since, other in owners[: bisect_right(owners, (at, NEVER))] if other == process]
        # Every heartbeat that changes the generation names all partitions: take the first of those without a gap.
        program = self._programs[process]
        lost = max((since for since in program.ended.get(int(rows.partition[row]), ()) if since <= at), default=0)
        return min((since for since in mine if since >= lost), default=0)

    def _is_committed(self, partition: int, offset: int, before: int) -> bool:
        """Return whether a commit above the message was accepted before this time."""
        ended, highest = self._accepted[partition]
        at = int(np.searchsorted(ended, before)) - 1
        return at >= 0 and bool(highest[at] > offset)

    def _late(self, program: _Program, partition: int, got: int, end: int) -> str | None:
        """Return why the message should have been committed before the end of the program; None if it need not."""
        mode, interval = self._rule.mode, self._rule.interval_ns
        if mode == "manual":
            return None
        if mode == "immediate":
            is_late = program.next_ok_ns(got) < end
            return "was not committed, although the program got further messages" if is_late else None
        due = program.done_ns(got) + interval if mode == "interval" else got + interval + min(SECOND, interval // 4)
        if any(
            not is_ok and due - interval <= began <= end for began, _, _, is_ok in program.commits.get(partition, ())
        ):
            # A commit was tried, and its outcome is unknown or it was refused.
            return None
        late = end - due - SLACK_NS - program.slowest_commit
        return f"was not committed {late / SECOND:.1f} s after it was due" if late > 0 else None

    def _falling(self) -> None:
        """Check that accepted commits of a partition never fall."""
        rows = self._member
        done = rows.where((rows.event == MEMBERSHIP.COMMIT) & (rows.outcome == OUTCOME.OK))
        for partition in np.unique(done.partition).tolist():
            mine = done.where(done.partition == partition)
            ended, highest = self._accepted[partition]
            best = np.append(0, highest)[np.searchsorted(ended, mine.invoked_ns)]
            for row in true_at(best > mine.offset)[:MOST].tolist():
                what = f"a commit was accepted below {best[row]}, which was committed before"
                self._wrong(partition, int(mine.offset[row]), what, call(self._run, mine, row))

    def _wrong(self, partition: int, offset: int, what: str, *calls: str) -> None:
        if len(self.figures.violations) < MOST:
            text = f"{self.figures.group} ({self._rule.mode}): message {offset} of partition {partition}: {what}"
            self.figures.violations.append(Violation(invariant=NAME, what=text, calls=calls))


@dataclass(frozen=True, slots=True)
class _MemberRow:
    process: int
    partition: int
    offset: int
    event: int
    outcome: int
    invoked_ns: int
    completed_ns: int


def _rows(table: TableColumns) -> Iterator[_MemberRow]:
    names: Sequence[str] = _MemberRow.__dataclass_fields__.keys()  # type: ignore[assignment]
    return (_MemberRow(*each) for each in zip(*(getattr(table, name).tolist() for name in names), strict=True))
