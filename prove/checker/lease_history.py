"""What the checks of leases share: deliveries, answers and progress of one group in one partition, put in order.

It checks nothing. Tokens of a partition only rise, so that they tell which of two leases came first, whoever recorded
them. An answer or a consume of unknown outcome may have happened: it excuses what it could have caused, and proves
nothing. All is array arithmetic: a delivery is a row of `given`, and whatever is known of it stands in the same row of
another array. It is computed once for each scope, and kept with its tables.
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
"""A server that is so slow answers with nothing, and gives back what comes after that."""


def _verbs(*chosen: OwnerVerb) -> Array:
    return np.array([verb in chosen for verb in OwnerVerb])


FINISHING = _verbs(OwnerVerb.ACK, OwnerVerb.DISCARD, OwnerVerb.FAIL)
RETURNING = _verbs(OwnerVerb.NACK, OwnerVerb.RELEASE, OwnerVerb.FAIL)
SETTLING = _verbs(OwnerVerb.ACK, OwnerVerb.DISCARD)


def leases_of(tables: Tables, run: RunInfo) -> LeaseHistory:
    """Those of the scope; the same for all checks of it."""
    known = tables.__dict__.get("_leases")
    if not isinstance(known, LeaseHistory) or known.run is not run:
        known = tables.__dict__["_leases"] = LeaseHistory(tables, run)
    return known


def doubt(tables: Tables, run: RunInfo) -> str | None:
    """Why nothing can be concluded, if so: it is not known which position epoch a lease was in."""
    return leases_of(tables, run).seeks.doubt


class LeaseHistory:
    """One group in one partition, in order."""

    def __init__(self, tables: Tables, run: RunInfo) -> None:
        self.run = run
        self._tables = {name: tables[name] for name in _TABLES}
        self.topic, self.partition, self.group = _place(self._tables)
        self.rules = run.rules_of(self.topic, self.group)
        self.clock_ms = int(run.targets.get("clock_ms", 0))
        """By so much the recorders' clock and the database's may differ in this run."""
        delivery, answer = self._tables["delivery"], self._tables["answer"]
        said = answer.verb != VERB.EXTEND
        named = true_at(said & (answer.token >= 0) & (answer.offset >= 0))
        codes, self._width = _lease_codes(delivery, answer, named)
        order = np.lexsort((delivery.invoked_ns, codes[0]))
        self._deliver(delivery, codes[0][order], order)
        order = np.lexsort((answer.invoked_ns[named], codes[1]))
        self.said = AnswerHistory(answer, named[order], codes[1][order], self.codes)
        """What owners said about single messages, by offset and token, in the order in which they said it."""
        extends = true_at(~said & (answer.token >= 0))
        order = np.lexsort((answer.invoked_ns[extends], answer.token[extends]))
        self.extends = ExtensionHistory(answer, extends[order], self.given)

    def _deliver(self, delivery: TableColumns, codes: Array, order: Array) -> None:
        """Each lease of a message once; what the same owner was told of it again is in `again`."""
        same = np.zeros(len(codes), np.bool_)
        same[1:] = codes[1:] == codes[:-1]
        if same.any():
            first = np.maximum.accumulate(np.where(same, 0, np.arange(len(codes))))
            owner = delivery.owner[order]
            same &= owner == owner[first]
        self.codes = codes[~same]
        """Offset and token of each delivery as one number, rising."""
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
        """How many seeks were before each delivery."""
        return self.seeks.before(self.given.invoked_ns)

    @cached_property
    def messages(self) -> RowGroups:
        """Deliveries by their message."""
        return RowGroups(self.given.offset)

    @cached_property
    def turns(self) -> RowGroups:
        """Deliveries by their message and position epoch."""
        if not self.seeks.count:
            return self.messages
        return RowGroups(self.turn_codes(self.given.offset, self.epoch))

    def turn_codes(self, offsets: Array, epochs: Array | int) -> Array:
        return offsets * (self.seeks.count + 1) + epochs

    # Consumes of unknown outcome --------------------------------------------------------------------------------------

    @cached_property
    def unknown(self) -> SortedRows:
        """Consumes that may have leased messages which nobody was told of, in order."""
        call = self._tables["call"]
        consumes = true_at((call.verb == VERB.CONSUME) & (call.outcome != OUTCOME.FAIL))
        lost = (call.outcome[consumes] == OUTCOME.INFO) | (call.completed_ns[consumes] == 0)
        slow = consumes[~lost & (call.completed_ns[consumes] - call.invoked_ns[consumes] > GAVE_UP_NS)]
        if len(slow):
            slow = slow[~_with_deliveries(call, slow, self._tables["delivery"])]
        found = np.concatenate((consumes[lost], slow))
        return SortedRows(call, found[np.argsort(call.invoked_ns[found], kind="stable")])

    def unknown_before(self, times: Array) -> Array:
        """How many of them were made before: each may have taken a message."""
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
        """All messages of the log as the final read had them, rising."""
        return self._log[0]

    @cached_property
    def all_offsets(self) -> Array:
        """Those, and what was delivered or died and is not in the log any more."""
        known = self.messages.codes
        if len(self.letters):
            known = np.union1d(known, self.letters.offset)
        gone = known[found_at(self.offsets, known) < 0]
        return np.sort(np.concatenate((self.offsets, gone))) if len(gone) else self.offsets

    @property
    def keys(self) -> Array:
        """The key of each of them, 0 if it has none."""
        return self._log[1]

    def keys_of(self, offsets: Array) -> tuple[Array, Array]:
        """What orders these, and whether that is known: what retention cut is not in the log any more."""
        at = found_at(self.offsets, offsets)
        if self.rules.order is not Order.KEY:
            return np.full(len(offsets), int(self.rules.order is Order.PARTITION)), np.ones(len(offsets), np.bool_)
        return looked_up(self.keys, at, 0), at >= 0

    @cached_property
    def went_back_first(self) -> Array:
        """Whether each answer, if it gave a message back, did so by itself, and not after an earlier one of its key.

        What is behind such a one in its lease goes back with it, and a nack of it, in the same call or later, changes
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
                # One that was cut may have had the key of any of those behind it.
                first &= ~np.isin(token, token[~known]) | (key == 0)
            found[back] = known & first
        return found

    def in_lease_with(self, rows: Array, offsets: Array) -> Array:
        """The rows of other messages in the leases of these deliveries; -1 where they are not in them."""
        return found_at(self.codes, self.codes[rows] + (offsets - self.given.offset[rows]) * self._width)

    def in_front(self, rows: Array) -> tuple[Array, Array]:
        """For these deliveries: whether an earlier message of their key is in the same lease, and the first time
        (on the wall) at which one of those may have been given back, and they with it."""
        given = self.given
        leases = np.unique(given.token[rows])
        near = true_at(np.isin(given.token, leases))
        keys, known = self.keys_of(given.offset[near])
        token = given.token[near]
        # A message whose key is not known may belong to any.
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

    # What became of each delivery -------------------------------------------------------------------------------------

    @cached_property
    def finished_ns(self) -> Array:
        """When an ack, discard or fatal nack was sent that may have happened."""
        return self.said.least(self.said.happened & FINISHING[self.said.verb], self.said.invoked_ns)

    @cached_property
    def ended_ns(self) -> Array:
        """When it was surely over: an ack, a discard or its death was confirmed."""
        said = self.said
        return said.least(said.ok & (SETTLING[said.verb] | said.dead), said.completed_ns)

    @cached_property
    def closed_wall_ms(self) -> Array:
        """When the first answer was sent that may have taken it out of its lease."""
        return self.said.least(self.said.happened, self.said.invoked_wall_ms)

    @cached_property
    def returned_wall_ms(self) -> Array:
        return self.said.least(self.said.happened & RETURNING[self.said.verb], self.said.invoked_wall_ms)

    @cached_property
    def until_ms(self) -> Array:
        """Until when it was surely valid, unless it was answered."""
        extends = self.extends
        known = np.where(extends.ok, extends.expires_ms, 0)
        return np.maximum(self.given.expires_ms, looked_up(extends.leases.most(known), extends.at, 0))

    @cached_property
    def latest_ms(self) -> Array:
        """Until when it can have been valid: an extend of unknown outcome may have come at any time."""
        extends = self.extends
        doubtful = looked_up(extends.leases.any(extends.happened & ~extends.ok), extends.at, False)
        return np.where(doubtful, NEVER, self.until_ms)

    @cached_property
    def alone(self) -> Array:
        """Whether it was a suspect, and may have been all that its owner had in hand: then its end is a failure."""
        extends = self.extends
        # A worker may say with an extend that it has put everything else aside.
        said = looked_up(extends.leases.any(extends.happened), extends.at, False)
        return np.asarray(self.given.suspect & ((self.given.together == 1) | said))

    # The end ----------------------------------------------------------------------------------------------------------

    @cached_property
    def letters(self) -> SortedRows:
        dead = self._tables["dead"]
        return SortedRows(dead, np.argsort(dead.offset, kind="stable"))

    def is_dead(self, offsets: Array) -> Array:
        """Whether there is a dead letter of them."""
        return found_at(self.letters.offset, offsets) >= 0

    @cached_property
    def samples(self) -> SortedRows:
        """How far the group was whenever it was asked, and at the end; by the time of asking, the end last."""
        progress = self._tables["progress"]
        told = true_at(progress.final | ((progress.outcome == OUTCOME.OK) & (progress.completed_ns != 0)))
        return SortedRows(progress, told[np.lexsort((progress.invoked_ns[told], progress.final[told]))])

    @property
    def last(self) -> int | None:
        """The row of `samples` that has the last word."""
        return len(self.samples) - 1 if len(self.samples) and self.samples.final[-1] else None

    @cached_property
    def cut_end(self) -> int:
        """Retention took the log up to here."""
        return int(self._tables["cut"].end.max(initial=0))

    # Words ------------------------------------------------------------------------------------------------------------

    def owner(self, row: int) -> str:
        return self.run.name(self.given.owner[row])

    def call(self, rows: SortedRows, row: int) -> str:
        return f"{self.run.name(rows.process[row])}-{rows.counter[row]}"

    def wrong(self, invariant: str, what: str, *calls: str, offset: int | None = None) -> Violation:
        """A violation about this partition, or about one of its messages."""
        where = f"partition {self.partition}" if offset is None else f"message {offset} of partition {self.partition}"
        place = None if offset is None else (self.run.name(self.topic), self.partition, int(offset))
        return Violation(invariant=invariant, what=f"{where}: {what}", calls=calls, place=place)


class SeekHistory:
    """The seeks of the group that may have happened, and began a position epoch."""

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
        # The earliest completion of those that began at this one or later.
        self._next_done = np.append(np.minimum.accumulate(np.where(known, done, NEVER)[::-1])[::-1], NEVER)
        self.doubt = None if known.all() else "a seek of unknown outcome"
        during = np.searchsorted(self._invoked, delivery.completed_ns) > self.before(delivery.invoked_ns)
        if self.doubt is None and during.any():
            row = int(true_at(during)[0])
            self.doubt = f"{run.name(delivery.process[row])}-{delivery.counter[row]} leased during a seek"

    def before(self, times: Array) -> Array:
        """How many were over before."""
        if not self.count:
            return np.zeros(len(times), np.int64)
        return np.searchsorted(self._completed, times)

    def between(self, leased_ns: Array, answered_ns: Array) -> Array:
        """Whether one began after the first time, and was over before the second."""
        if not self.count:
            return np.zeros(len(leased_ns), np.bool_)
        return np.asarray(self._next_done[np.searchsorted(self._invoked, leased_ns, "right")] < answered_ns)


def _is_first_position(call: TableColumns, row: int, delivery: TableColumns, samples: SortedRows, seeks: int) -> bool:
    """Whether this seek gave the group where it begins: that is epoch 0, and nothing was leased or told before."""
    if not len(samples) or samples.epoch.max() != seeks - 1 or call.completed_ns[row] == 0:
        return False
    times = np.concatenate((delivery.completed_ns, samples.completed_ns[~samples.final]))
    return bool(times.min(initial=NEVER) > call.completed_ns[row])


class Told(SortedRows):
    """Rows of the answers, with what their outcomes mean."""

    def __init__(self, answer: TableColumns, order: Array) -> None:
        super().__init__(answer, order)
        self.ok: Array = (self.outcome == OUTCOME.OK) & (self.completed_ns != 0)
        self.happened: Array = self.ok | (self.outcome != OUTCOME.FAIL) | (self.completed_ns == 0)
        """Whether it may have: all that was not refused."""


class AnswerHistory(Told):
    """What was said about single messages, beside the deliveries that were meant."""

    def __init__(self, answer: TableColumns, order: Array, codes: Array, delivered: Array) -> None:
        super().__init__(answer, order)
        self.leases = RowGroups(codes)
        """By offset and token."""
        self._at = self.leases.find(delivered)
        self.delivery: Array = found_at(delivered, self.leases.codes)[self.leases.number]
        """The row of the delivery that each is about; -1 if nobody knows of one."""
        self.overtaken_by: Array = np.searchsorted(delivered, self.leases.codes, "right")[self.leases.number]
        """The row of what follows that delivery."""

    def least(self, chosen: Array, values: Array) -> Array:
        """For each delivery, the least value among the chosen answers about it."""
        return looked_up(self.leases.least(np.where(chosen, values, NEVER)), self._at, NEVER)

    def any(self, chosen: Array) -> Array:
        """For each delivery, whether an answer about it is among the chosen."""
        return looked_up(self.leases.any(chosen), self._at, False)


class ExtensionHistory(Told):
    """What made leases longer, by token, in the order in which it was said."""

    def __init__(self, answer: TableColumns, order: Array, given: SortedRows) -> None:
        super().__init__(answer, order)
        self.leases = RowGroups(self.token)
        self.at = self.leases.find(given.token)
        """For each delivery, where its lease is among them; -1 if it was never extended."""


_TABLES = ("delivery", "answer", "call", "progress", "dead", "seen", "cut")


def _place(tables: dict[str, TableColumns]) -> tuple[int, int, int]:
    for name in ("delivery", "progress", "answer", "dead"):
        table = tables[name]
        if len(table):
            return int(table.topic[0]), int(table.partition[0]), int(table.group[0])
    seen = tables["seen"]
    return (int(seen.topic[0]), int(seen.partition[0]), 0) if len(seen) else (0, -1, 0)


def _lease_codes(delivery: TableColumns, answer: TableColumns, named: Array) -> tuple[tuple[Array, Array], int]:
    """Offset and token as one number, of deliveries and of answers."""
    tokens = np.concatenate((delivery.token, answer.token[named]))
    offsets = np.concatenate((delivery.offset, answer.offset[named]))
    codes, width = paired(offsets, tokens)
    return (codes[: len(delivery)], codes[len(delivery) :]), width


def _with_deliveries(call: TableColumns, rows: Array, delivery: TableColumns) -> Array:
    """Whether these consumes brought something."""
    came = set(zip(delivery.process.tolist(), delivery.counter.tolist(), strict=True))
    asked = zip(call.process[rows].tolist(), call.counter[rows].tolist(), strict=True)
    return np.array([each in came for each in asked], np.bool_)
