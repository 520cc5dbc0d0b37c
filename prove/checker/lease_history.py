"""The deliveries, answers and progress of one group in one partition, in order. All lease checks use it.

This module checks nothing. Tokens of a partition only rise, so they give the order of two leases even across recorders.
An answer or a consume of unknown outcome may have taken effect: its possible effects are not violations, and prove
nothing. Everything is array arithmetic: a delivery is a row of `given`, and derived values are in the same row of
another array. The history is computed once per scope and cached with its tables.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lakelog.model.group import Order
from prove.checker.enum_codes import OUTCOME, READER, VERB
from prove.checker.invariant import RunInfo, Violation
from prove.checker.row_groups import NEVER, Array, RowGroups, SortedRows, looked_up, paired, running_least
from prove.checker.row_matching import found_at, true_at
from prove.history.tables import OwnerVerb, TableColumns, Tables

GAVE_UP_NS = 9_000_000_000
"""The time after which a server returns no messages, and releases messages that are leased later."""


def _verbs(*chosen: OwnerVerb) -> Array:
    return np.array([verb in chosen for verb in OwnerVerb])


FINISHING = _verbs(OwnerVerb.ACK, OwnerVerb.DISCARD, OwnerVerb.FAIL)
RETURNING = _verbs(OwnerVerb.NACK, OwnerVerb.RELEASE, OwnerVerb.FAIL)
SETTLING = _verbs(OwnerVerb.ACK, OwnerVerb.DISCARD)


def leases_of(tables: Tables, run: RunInfo) -> LeaseHistory:
    """Return the lease history of the scope, cached for all its checks."""
    known = tables.__dict__.get("_leases")
    if not isinstance(known, LeaseHistory) or known.run is not run:
        known = tables.__dict__["_leases"] = LeaseHistory(tables, run)
    return known


def doubt(tables: Tables, run: RunInfo) -> str | None:
    """Return why nothing can be concluded if the position epoch of a lease may be unknown; else None."""
    return leases_of(tables, run).seeks.doubt


class LeaseHistory:
    """The lease history of one group in one partition."""

    def __init__(self, tables: Tables, run: RunInfo) -> None:
        self.run = run
        self._tables = {name: tables[name] for name in _TABLES}
        self.topic, self.partition, self.group = _place(self._tables)
        self.rules = run.rules_of(self.topic, self.group)
        self.clock_ms = int(run.targets.get("clock_ms", 0))
        """Maximum difference between the recorders' clock and the database clock in this run."""
        delivery, answer = self._tables["delivery"], self._tables["answer"]
        said = answer.verb != VERB.EXTEND
        named = true_at(said & (answer.token >= 0) & (answer.offset >= 0))
        codes, self._width = _lease_codes(delivery, answer, named)
        order = np.lexsort((delivery.invoked_ns, codes[0]))
        self._deliver(delivery, codes[0][order], order)
        order = np.lexsort((answer.invoked_ns[named], codes[1]))
        self.said = AnswerHistory(answer, named[order], codes[1][order], self.codes)
        """Answers about single messages by offset and token, in the order in which they were sent."""
        extends = true_at(~said & (answer.token >= 0))
        order = np.lexsort((answer.invoked_ns[extends], answer.token[extends]))
        self.extends = ExtensionHistory(answer, extends[order], self.given)

    def _deliver(self, delivery: TableColumns, codes: Array, order: Array) -> None:
        """Keep each lease of a message once. Repeated deliveries of the same lease to the same owner are in `again`."""
        same = np.zeros(len(codes), np.bool_)
        same[1:] = codes[1:] == codes[:-1]
        if same.any():
            first = np.maximum.accumulate(np.where(same, 0, np.arange(len(codes))))
            owner = delivery.owner[order]
            same &= owner == owner[first]
        self.codes = codes[~same]
        """The offset and token of each delivery as one rising number."""
        self.given = SortedRows(delivery, order[~same])
        """Deliveries by offset and token."""
        self.again = SortedRows(delivery, order[same])
        self.granted_ms: Array = self.given.expires_ms - self.given.lease_ms

    # Position epochs --------------------------------------------------------------------------------------------------

    @cached_property
    def seeks(self) -> SeekHistory:
        return SeekHistory(self._tables["call"], self._tables["delivery"], self.samples, self.run)

    @cached_property
    def epoch(self) -> Array:
        """Return the number of seeks before each delivery."""
        return self.seeks.before(self.given.invoked_ns)

    @cached_property
    def messages(self) -> RowGroups:
        """Return the deliveries grouped by message."""
        return RowGroups(self.given.offset)

    @cached_property
    def turns(self) -> RowGroups:
        """Return the deliveries grouped by message and position epoch."""
        if not self.seeks.count:
            return self.messages
        return RowGroups(self.turn_codes(self.given.offset, self.epoch))

    def turn_codes(self, offsets: Array, epochs: Array | int) -> Array:
        return offsets * (self.seeks.count + 1) + epochs

    # Consumes of unknown outcome --------------------------------------------------------------------------------------

    @cached_property
    def unknown(self) -> SortedRows:
        """Return the consumes that may have leased messages without a recorded delivery, in order."""
        call = self._tables["call"]
        consumes = true_at((call.verb == VERB.CONSUME) & (call.outcome != OUTCOME.FAIL))
        lost = (call.outcome[consumes] == OUTCOME.INFO) | (call.completed_ns[consumes] == 0)
        slow = consumes[~lost & (call.completed_ns[consumes] - call.invoked_ns[consumes] > GAVE_UP_NS)]
        if len(slow):
            slow = slow[~_with_deliveries(call, slow, self._tables["delivery"])]
        found = np.concatenate((consumes[lost], slow))
        return SortedRows(call, found[np.argsort(call.invoked_ns[found], kind="stable")])

    def unknown_before(self, times: Array) -> Array:
        """Return how many consumes with unrecorded leases were made before each time.

        Each may have leased a message.
        """
        return np.searchsorted(self.unknown.invoked_ns, times)

    # Keys -------------------------------------------------------------------------------------------------------------

    @cached_property
    def _log(self) -> tuple[Array, Array]:
        seen = self._tables["seen"]
        chosen = true_at(seen.reader == READER.FINAL)
        offsets, first = np.unique(seen.offset[chosen], return_index=True)
        return offsets, seen.key[chosen[first]]

    @property
    def offsets(self) -> Array:
        """Return the offsets of all messages in the final read, in order."""
        return self._log[0]

    @cached_property
    def all_offsets(self) -> Array:
        """Return the offsets of the final read, and those that were delivered or died and are no longer in the log."""
        known = self.messages.codes
        if len(self.letters):
            known = np.union1d(known, self.letters.offset)
        gone = known[found_at(self.offsets, known) < 0]
        return np.sort(np.concatenate((self.offsets, gone))) if len(gone) else self.offsets

    @property
    def keys(self) -> Array:
        """Return the key of each of these offsets; 0 if it has none."""
        return self._log[1]

    def keys_of(self, offsets: Array) -> tuple[Array, Array]:
        """Return the ordering key of these offsets, and whether it is known.

        A message that retention cut is no longer in the log.
        """
        at = found_at(self.offsets, offsets)
        if self.rules.order is not Order.KEY:
            return np.full(len(offsets), int(self.rules.order is Order.PARTITION)), np.ones(len(offsets), np.bool_)
        return looked_up(self.keys, at, 0), at >= 0

    @cached_property
    def went_back_first(self) -> Array:
        """Return whether each answer gave its message back itself, not because of an earlier message of its key.

        Later messages of the same key in the lease are given back with that message. A nack of a later message changes
        nothing more.
        """
        said = self.said
        back = true_at(RETURNING[said.verb] & said.happened)
        found = np.zeros(len(said), np.bool_)
        if len(back):
            keys, known = self.keys_of(said.offset[back])
            order = np.lexsort((said.offset[back], keys, said.token[back]))
            back, key, known = back[order], keys[order], known[order]
            token, offset = said.token[back], said.offset[back]
            begins = np.zeros(len(back), np.int64)
            begins[1:] = np.where((token[1:] != token[:-1]) | (key[1:] != key[:-1]), np.arange(1, len(back)), 0)
            first = (offset == offset[np.maximum.accumulate(begins)]) | (key == 0)
            if not known.all():
                # A message that was cut may have had the key of any message behind it.
                first &= ~np.isin(token, token[~known]) | (key == 0)
            found[back] = known & first
        return found

    def in_lease_with(self, rows: Array, offsets: Array) -> Array:
        """Return the rows of the given offsets in the leases of these deliveries; -1 if they are missing."""
        return found_at(self.codes, self.codes[rows] + (offsets - self.given.offset[rows]) * self._width)

    def in_front(self, rows: Array) -> tuple[Array, Array]:
        """Return whether each lease has an earlier message of the key, and when both may have been given back."""
        given = self.given
        leases = np.unique(given.token[rows])
        near = true_at(np.isin(given.token, leases))
        keys, known = self.keys_of(given.offset[near])
        token = given.token[near]
        # A message whose key is unknown may belong to any key.
        keys[np.isin(token, token[~known])] = 1
        order = np.lexsort((given.offset[near], keys, token))
        near, keys, token = near[order], keys[order], token[order]
        begins = np.ones(len(near), np.bool_)
        begins[1:] = (token[1:] != token[:-1]) | (keys[1:] != keys[:-1]) | (keys[1:] == 0)
        first = given.offset[near[np.maximum.accumulate(np.where(begins, np.arange(len(near)), 0))]]
        behind = np.zeros(len(given), np.bool_)
        behind[near] = first < given.offset[near]
        back = np.full(len(given), NEVER)
        back[near] = running_least(self.returned_wall_ms[near], begins)
        return behind[rows], back[rows]

    # Outcomes of deliveries -------------------------------------------------------------------------------------------

    @cached_property
    def finished_ns(self) -> Array:
        """Return when an ack, discard or fatal nack was sent that may have taken effect."""
        return self.said.least(self.said.happened & FINISHING[self.said.verb], self.said.invoked_ns)

    @cached_property
    def ended_ns(self) -> Array:
        """Return when the message had certainly ended: an ack, a discard or its death was confirmed."""
        said = self.said
        return said.least(said.ok & (SETTLING[said.verb] | said.dead), said.completed_ns)

    @cached_property
    def closed_wall_ms(self) -> Array:
        """Return when the first answer was sent that may have ended the lease of the message."""
        return self.said.least(self.said.happened, self.said.invoked_wall_ms)

    @cached_property
    def returned_wall_ms(self) -> Array:
        return self.said.least(self.said.happened & RETURNING[self.said.verb], self.said.invoked_wall_ms)

    @cached_property
    def until_ms(self) -> Array:
        """Return the time until which the lease was certainly valid if it was not answered."""
        extends = self.extends
        known = np.where(extends.ok, extends.expires_ms, 0)
        return np.maximum(self.given.expires_ms, looked_up(extends.leases.most(known), extends.at, 0))

    @cached_property
    def latest_ms(self) -> Array:
        """Return the time until which the lease can have been valid.

        An extend of unknown outcome may have arrived at any time.
        """
        extends = self.extends
        doubtful = looked_up(extends.leases.any(extends.happened & ~extends.ok), extends.at, False)
        return np.where(doubtful, NEVER, self.until_ms)

    @cached_property
    def alone(self) -> Array:
        """Return whether each delivery was a suspect that may have been its owner's only message."""
        extends = self.extends
        # With an extend, a worker can declare that it has put all other messages aside.
        said = looked_up(extends.leases.any(extends.happened), extends.at, False)
        return np.asarray(self.given.suspect & ((self.given.together == 1) | said))

    # Final state ------------------------------------------------------------------------------------------------------

    @cached_property
    def letters(self) -> SortedRows:
        dead = self._tables["dead"]
        return SortedRows(dead, np.argsort(dead.offset, kind="stable"))

    def is_dead(self, offsets: Array) -> Array:
        """Return whether each offset has a dead letter."""
        return found_at(self.letters.offset, offsets) >= 0

    @cached_property
    def samples(self) -> SortedRows:
        """Return the progress samples by request time; the final sample is last."""
        progress = self._tables["progress"]
        told = true_at(progress.final | ((progress.outcome == OUTCOME.OK) & (progress.completed_ns != 0)))
        return SortedRows(progress, told[np.lexsort((progress.invoked_ns[told], progress.final[told]))])

    @property
    def last(self) -> int | None:
        """Return the row of `samples` with the final progress."""
        return len(self.samples) - 1 if len(self.samples) and self.samples.final[-1] else None

    @cached_property
    def cut_end(self) -> int:
        """Return the offset up to which retention removed the log."""
        return int(self._tables["cut"].end.max(initial=0))

    # Violations -------------------------------------------------------------------------------------------------------

    def owner(self, row: int) -> str:
        return self.run.name(self.given.owner[row])

    def call(self, rows: SortedRows, row: int) -> str:
        return f"{self.run.name(rows.process[row])}-{rows.counter[row]}"

    def wrong(self, invariant: str, what: str, *calls: str, offset: int | None = None) -> Violation:
        """Return a violation about this partition, or about one of its messages."""
        where = f"partition {self.partition}" if offset is None else f"message {offset} of partition {self.partition}"
        place = None if offset is None else (self.run.name(self.topic), self.partition, int(offset))
        return Violation(invariant=invariant, what=f"{where}: {what}", calls=calls, place=place)


class SeekHistory:
    """The seeks of the group that may have taken effect and begun a position epoch."""

    def __init__(self, call: TableColumns, delivery: TableColumns, samples: SortedRows, run: RunInfo) -> None:
        chosen = true_at((call.verb == VERB.SEEK) & (call.outcome != OUTCOME.FAIL))
        order = chosen[np.argsort(call.invoked_ns[chosen], kind="stable")]
        if len(order) and _is_first_position(call, int(order[0]), delivery, samples, len(order)):
            order = order[1:]
        self.count = len(order)
        if not self.count:
            self.doubt: str | None = None
            return
        done = call.completed_ns[order]
        known = (call.outcome[order] == OUTCOME.OK) & (done != 0)
        self._invoked = call.invoked_ns[order]
        self._completed = np.sort(done[done != 0])
        # The earliest completion of the seeks that began here or later.
        self._next_done = np.append(np.minimum.accumulate(np.where(known, done, NEVER)[::-1])[::-1], NEVER)
        self.doubt = None if known.all() else "a seek of unknown outcome"
        during = np.searchsorted(self._invoked, delivery.completed_ns) > self.before(delivery.invoked_ns)
        if self.doubt is None and during.any():
            row = int(true_at(during)[0])
            self.doubt = f"{run.name(delivery.process[row])}-{delivery.counter[row]} leased during a seek"

    def before(self, times: Array) -> Array:
        """Return how many seeks had ended before each time."""
        if not self.count:
            return np.zeros(len(times), np.int64)
        return np.searchsorted(self._completed, times)

    def between(self, leased_ns: Array, answered_ns: Array) -> Array:
        """Return whether a seek began after the first time and ended before the second."""
        if not self.count:
            return np.zeros(len(leased_ns), np.bool_)
        return np.asarray(self._next_done[np.searchsorted(self._invoked, leased_ns, "right")] < answered_ns)


def _is_first_position(call: TableColumns, row: int, delivery: TableColumns, samples: SortedRows, seeks: int) -> bool:
    """Return whether this seek set the group's first position: epoch 0, with no lease or sample before it."""
    if not len(samples) or samples.epoch.max() != seeks - 1 or call.completed_ns[row] == 0:
        return False
    times = np.concatenate((delivery.completed_ns, samples.completed_ns[~samples.final]))
    return bool(times.min(initial=NEVER) > call.completed_ns[row])


class Told(SortedRows):
    """Rows of answers, with the meaning of their outcomes."""

    def __init__(self, answer: TableColumns, order: Array) -> None:
        super().__init__(answer, order)
        self.ok: Array = (self.outcome == OUTCOME.OK) & (self.completed_ns != 0)
        self.happened: Array = self.ok | (self.outcome != OUTCOME.FAIL) | (self.completed_ns == 0)
        """True for answers that may have taken effect: all that were not refused."""


class AnswerHistory(Told):
    """Answers about single messages, matched with the deliveries they refer to."""

    def __init__(self, answer: TableColumns, order: Array, codes: Array, delivered: Array) -> None:
        super().__init__(answer, order)
        self.leases = RowGroups(codes)
        """Groups of rows with the same offset and token."""
        self._at = self.leases.find(delivered)
        self.delivery: Array = found_at(delivered, self.leases.codes)[self.leases.number]
        """The row of the delivery that each answer is about; -1 if no delivery is recorded."""
        self.overtaken_by: Array = np.searchsorted(delivered, self.leases.codes, "right")[self.leases.number]
        """The row after the delivery that each answer is about."""

    def least(self, chosen: Array, values: Array) -> Array:
        """Return, for each delivery, the smallest value among the selected answers about it."""
        return looked_up(self.leases.least(np.where(chosen, values, NEVER)), self._at, NEVER)

    def any(self, chosen: Array) -> Array:
        """Return, for each delivery, whether an answer about it is selected."""
        return looked_up(self.leases.any(chosen), self._at, False)


class ExtensionHistory(Told):
    """Extensions of leases by token, in the order in which they were sent."""

    def __init__(self, answer: TableColumns, order: Array, given: SortedRows) -> None:
        super().__init__(answer, order)
        self.leases = RowGroups(self.token)
        self.at = self.leases.find(given.token)
        """The index of the lease of each delivery among the extensions; -1 if it was never extended."""


_TABLES = ("delivery", "answer", "call", "progress", "dead", "seen", "cut")


def _place(tables: dict[str, TableColumns]) -> tuple[int, int, int]:
    for name in ("delivery", "progress", "answer", "dead"):
        table = tables[name]
        if len(table):
            return int(table.topic[0]), int(table.partition[0]), int(table.group[0])
    seen = tables["seen"]
    return (int(seen.topic[0]), int(seen.partition[0]), 0) if len(seen) else (0, -1, 0)


def _lease_codes(delivery: TableColumns, answer: TableColumns, named: Array) -> tuple[tuple[Array, Array], int]:
    """Return offset and token of deliveries and answers as one number."""
    tokens = np.concatenate((delivery.token, answer.token[named]))
    offsets = np.concatenate((delivery.offset, answer.offset[named]))
    codes, width = paired(offsets, tokens)
    return (codes[: len(delivery)], codes[len(delivery) :]), width


def _with_deliveries(call: TableColumns, rows: Array, delivery: TableColumns) -> Array:
    """Return whether these consumes delivered messages."""
    came = set(zip(delivery.process.tolist(), delivery.counter.tolist(), strict=True))
    asked = zip(call.process[rows].tolist(), call.counter[rows].tolist(), strict=True)
    return np.array([each in came for each in asked], np.bool_)
