"""Dead letters: list, find, redrive and discard, page by page, and at most 10,000 in one call.

`lakelog.coordinator` decides when a message becomes a dead letter; `redrive` builds the message to publish.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import msgspec

from lakelog.engine.budget import Budget
from lakelog.engine.groups.group_directory import GroupDirectory
from lakelog.engine.groups.positions import gathered
from lakelog.engine.groups.redrive import (
    ChosenLetters,
    Ready,
    Tally,
    is_ready,
    made_ready,
    shares,
    still_dead,
    to_append,
    to_filter_input,
    to_key,
    to_letter,
    valid,
)
from lakelog.engine.leasing.exclusions import FilterEvaluator
from lakelog.engine.log.topics import Topics
from lakelog.engine.log.validators import Validators
from lakelog.errors import Conflict, DeadLetterNotFound, InvalidRequest, LakelogError, OutcomeUnknown, TopicNotFound
from lakelog.model.dead_letters import (
    DeadLetter,
    DeadLetterPage,
    DeadLetterQuery,
    DeadLetterRequest,
    DeadLetterSelection,
    DiscardedDeadLetters,
    DiscardRequest,
    PurgedDeadLetters,
    PurgeDeadLettersRequest,
    Redriven,
    RedriveRequest,
    RetryRequest,
)
from lakelog.model.filter import Filter, parse
from lakelog.model.group import Group
from lakelog.model.message import PARTITION_BITS, parse_message_id, partition_of_id
from lakelog.model.times import to_ms
from lakelog.model.topic import Scope, Topic
from lakelog.storage.groups import DeadLetterKey, StoredDeadLetter
from lakelog.storage.store import Appended, Catalog, PartitionStore, Refusal

_PER_PURGE = 1000
_PAGE, _FIRST_PAGE = 100, 20
"""The most dead letters that are read at once, and those that are read before their size is known."""
READ_AT_ONCE = 8
"""The number of dead letters with given ids that are read before the size of a page is checked."""
PAGE_BYTES = 8 << 20
"""The decompressed size of dead letters at which a page ends."""
_MAX_LOOKED_AT = 10_000
"""The largest number of dead letters that one page of a listing reads, even if the filter accepts fewer."""
_TRIES = 5
_MAX_OFFSET = 1 << 62

Cursor = tuple[int, DeadLetterKey]
"""A cell, and the last dead letter that was read in it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A dead letter with its topic."""

    topic: Topic
    letter: DeadLetter
    cursor: Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResources:
    """The resources that reads of dead letters share with other calls of the process."""

    budget: Budget = field(default_factory=lambda: Budget(256 << 20))
    evaluator: FilterEvaluator = field(default_factory=FilterEvaluator)
    validators: Validators | None = None


class DeadLetters:
    """The dead letters of all groups. `grew` gets the cell, partition, first offset and count of each append."""

    def __init__(
        self,
        catalog: Catalog,
        cells: Mapping[int, PartitionStore],
        topics: Topics,
        directory: GroupDirectory,
        grew: Callable[[int, int, int, int], None],
        resources: ReadResources | None = None,
    ) -> None:
        resources = resources or ReadResources()
        self._budget, self._evaluator = resources.budget, resources.evaluator
        self._validators = resources.validators
        self._catalog = catalog
        self._cells = cells
        self._topics = topics
        self._directory = directory
        self._grew = grew

    async def list(self, scope: Scope, query: DeadLetterQuery) -> DeadLetterPage:
        """Return the dead letters that match the query, in the order of cell, partition and offset."""
        wanted, begin = _filter(query.where), _parse_cursor(query.after)
        group = await self._directory.resolve(scope, query.group, create=False)
        topics = await self._topics_of(scope, group, query.topic)
        letters: builtins.list[DeadLetter] = []
        looked_at = size = 0
        try:
            async for found in self._walk(group, topics, query, begin, query.partition):
                looked_at += 1
                if await self._matches(wanted, found.letter):
                    letters.append(found.letter)
                    self._budget.take(_size(found.letter), scope.environment_id)
                    size += _size(found.letter)
                if len(letters) == query.limit or looked_at == _MAX_LOOKED_AT or size >= PAGE_BYTES:
                    return DeadLetterPage(letters=letters, next=_cursor_text(found.cursor))
            return DeadLetterPage(letters=letters)
        finally:
            self._budget.give(size, scope.environment_id)

    async def find(self, scope: Scope, request: DeadLetterRequest) -> DeadLetter:
        """Return the group's newest dead letter of that message, in any state."""
        group = await self._directory.resolve(scope, request.group, create=False)
        return (await self._find(group, await self._topics_of(scope, group, None), request.message_id)).letter

    async def redrive(self, scope: Scope, request: RedriveRequest) -> Redriven:
        """Publish dead letters again, for their group only.

        If dead letters are selected by their ids and none of them can be redriven, the first refusal is raised.
        """
        if request.repaired and not any((request.message_ids, request.topic, request.where, request.fingerprint)):
            request = msgspec.structs.replace(request, message_ids=tuple(request.repaired))
        group = await self._directory.resolve(scope, request.group, create=False)
        tally = Tally()
        try:
            has_more = await self._redrive(scope, group, request, tally)
        except LakelogError as error:
            if error.retryable and tally.redriven and not request.dry_run:
                # A client repeats a call that wrote nothing, and would count these as refused.
                raise OutcomeUnknown(f"The call redrove {tally.redriven} dead letters. {error.detail}") from error
            raise
        if request.message_ids is not None and tally.first is not None and not tally.redriven:
            raise tally.first
        return tally.total(dry_run=request.dry_run, has_more=has_more)

    async def _redrive(self, scope: Scope, group: Group, request: RedriveRequest, tally: Tally) -> bool:
        """Redrive page by page. Return whether there are more than the limit allows."""
        has_more, can_go = False, partial(is_ready, request=request)
        async for page, has_more in self._pages(scope, group, request, tally, can_go):  # noqa: B007
            topics = {found.topic.name: found.topic for found in page}
            with self._budget.held(_total_size(page), scope.environment_id):
                ready = _ready([found.letter for found in page], request, tally)
                if request.repaired and self._validators is not None:
                    ready = await valid(self._validators, topics, ready, request, tally)
                for share in shares(ready):
                    if request.dry_run:
                        tally.went([one.letter for one in share])
                    else:
                        await self._append(group, topics[share[0].letter.topic], share, tally)
        return has_more

    async def retry(self, scope: Scope, request: RetryRequest) -> Redriven:
        """Publish one dead letter again, for its group only."""
        repaired = None if request.repaired is None else {request.message_id: request.repaired}
        ids = (request.message_id,)
        one = RedriveRequest(group=request.group, message_ids=ids, force=request.force, repaired=repaired)
        return await self.redrive(scope, one)

    async def discard(self, scope: Scope, request: DiscardRequest) -> DiscardedDeadLetters:
        """Discard dead letters. Dead letters that are already redriven or discarded do not count."""
        group = await self._directory.resolve(scope, request.group, create=False)
        discarded, tally = 0, Tally()
        async for page, _ in self._pages(scope, group, request, tally):
            by_cell: dict[int, builtins.list[DeadLetterKey]] = {}
            for found in page:
                by_cell.setdefault(found.cursor[0], []).append(found.cursor[1])
            with self._budget.held(_total_size(page), scope.environment_id):
                for cell, keys in by_cell.items():
                    discarded += await self._cells[cell].groups.dead_discard(group.group_id, keys)
        if tally.first is not None and not discarded:
            raise tally.first
        return DiscardedDeadLetters(discarded=discarded)

    async def purge(self, scope: Scope, request: PurgeDeadLettersRequest) -> PurgedDeadLetters:
        """Delete dead letters that are redriven or discarded and died at least `older_than_ms` ago."""
        group = await self._directory.resolve(scope, request.group, create=False)
        age, purged = timedelta(milliseconds=request.older_than_ms), 0
        for found in (await self._topics_of(scope, group, request.topic)).values():
            for cell, pids in found.pids_by_cell().items():
                groups, count = self._cells[cell].groups, 1
                while count and (left := min(_PER_PURGE, request.limit - purged)):
                    purged += (count := await groups.dead_purge(group.group_id, pids, age=age, limit=left))
        return PurgedDeadLetters(purged=purged)

    # Choosing -------------------------------------------------------------------------------------------------------

    async def _pages(
        self,
        scope: Scope,
        group: Group,
        choice: DeadLetterSelection,
        tally: Tally,
        counts: Callable[[DeadLetter], bool] = lambda _: True,
    ) -> AsyncIterator[tuple[builtins.list[_Found], bool]]:
        """Yield the selected dead letters page by page, and record whether there are more than the limit allows.

        Dead letters that are refused do not count towards the limit; otherwise they would hide later dead letters.
        """
        topics = await self._topics_of(scope, group, choice.topic)
        if choice.message_ids is not None:
            async for named in self._named_pages(group, topics, choice.message_ids, tally):
                yield named, False
            return
        wanted = _filter(choice.where)
        page: builtins.list[_Found] = []
        left, size = choice.limit, 0
        async for found in self._walk(group, topics, choice, None):
            if not await self._matches(wanted, found.letter):
                continue
            if left == 0:
                yield page, True
                return
            if len(page) == _PAGE or size >= PAGE_BYTES:
                yield page, False
                page, size = [], 0
            page.append(found)
            size += _size(found.letter)
            left -= counts(found.letter)
        yield page, False

    async def _named_pages(
        self, group: Group, topics: Mapping[int, Topic], ids: Sequence[str], tally: Tally
    ) -> AsyncIterator[builtins.list[_Found]]:
        """Yield the dead letters with these ids in log order, page by page."""
        ordered = sorted(dict.fromkeys(ids), key=parse_message_id)
        page: builtins.list[_Found] = []
        for first in range(0, len(ordered), READ_AT_ONCE):
            page += await self._named(group, topics, ordered[first : first + READ_AT_ONCE], tally)
            if len(page) >= _PAGE or _total_size(page) >= PAGE_BYTES:
                yield page
                page = []
        yield page

    async def _walk(
        self,
        group: Group,
        topics: Mapping[int, Topic],
        choice: DeadLetterQuery | DeadLetterSelection,
        begin: Cursor | None,
        partition: int | None = None,
    ) -> AsyncIterator[_Found]:
        """Yield the dead letters that existed when the iteration reached their cell, so that it always ends."""
        by_cell: dict[int, builtins.list[int]] = {}
        for topic in topics.values():
            for cell, pids in topic.pids_by_cell().items():
                own = [pid for pid in pids if partition is None or partition_of_id(pid) == partition]
                by_cell.setdefault(cell, []).extend(own)
        for cell in sorted(cell for cell in by_cell if begin is None or cell >= begin[0]):
            store, pids = self._cells[cell], sorted(by_cell[cell])
            after = begin[1] if begin is not None and cell == begin[0] else None
            until = to_ms(await store.clock())
            chosen = ChosenLetters(group.group_id, pids, choice)
            limit = _FIRST_PAGE
            while stored := await chosen.read(store.groups, after, limit):
                for one in stored:
                    if one.at_ms <= until:
                        yield _found(one, topics, cell)
                if len(stored) < limit:
                    break
                after = stored[-1].key
                size = sum(len(one.payload or b"") for one in stored)
                limit = max(1, min(_PAGE, PAGE_BYTES * len(stored) // max(1, size)))

    async def _matches(self, wanted: Filter | None, letter: DeadLetter) -> bool:
        """Return whether the filter selects the dead letter. A filter that is expensive for it lets other calls run."""
        return wanted is None or await self._evaluator.matches(wanted, to_filter_input(letter), _size(letter))

    async def _named(
        self, group: Group, topics: Mapping[int, Topic], ids: Sequence[str], tally: Tally
    ) -> builtins.list[_Found]:
        """Return the named dead letters that exist, in log order. Refuse the other ids."""

        async def one(message_id: str) -> _Found | None:
            try:
                return await self._find(group, topics, message_id)
            except DeadLetterNotFound as missing:
                tally.refuse(message_id, missing)
                return None

        named = [found for found in await gathered(map(one, ids)) if found is not None]
        return sorted(named, key=lambda found: (found.cursor[1].pid, found.cursor[1].offset))

    async def _find(self, group: Group, topics: Mapping[int, Topic], message_id: str) -> _Found:
        incarnation, partition, offset = parse_message_id(message_id)
        topic = topics.get(incarnation)
        if topic is not None and partition < topic.partitions and offset < _MAX_OFFSET:
            cell = topic.cells[partition]
            stored = await self._cells[cell].groups.dead_find(group.group_id, topic.pid(partition), offset)
            if stored:
                return _found(stored[-1], topics, cell)
        raise DeadLetterNotFound(
            f"Group '{group.name}' has no dead letter {message_id}; "
            f"`lakelog dead list {group.name}` shows those it has.",
            group=group.name,
            id=message_id,
        )

    async def _topics_of(self, scope: Scope, group: Group, topic: str | None) -> dict[int, Topic]:
        """Return topics by incarnation: the given topic, or all that the group reads."""
        if topic is not None:
            found = await self._topics.refresh(scope, topic)
            return {found.incarnation: found}
        return {found.incarnation: found for found, _ in await self._catalog.groups.group_topic_list(group)}

    # Publishing -----------------------------------------------------------------------------------------------------

    async def _append(self, group: Group, topic: Topic, share: Sequence[Ready], tally: Tally) -> None:
        partition = share[0].letter.partition
        cell = topic.cells[partition]
        for _ in range(_TRIES):
            keys = [to_key(topic, one.letter) for one in share]
            answer, are_dead = await self._cells[cell].groups.dead_redrive(
                group.group_id, keys, to_append(topic, share)
            )
            if isinstance(answer, Appended):
                tally.went([one.letter for one in share])
                self._grew(cell, answer.pid, answer.base, len(share))
                return
            if answer is None:
                share = still_dead(share, are_dead, tally)
                if not share:
                    return
            elif answer.refusal is Refusal.EPOCH:
                topic = await self._again(topic)
            else:
                raise TopicNotFound(f"Topic '{topic.name}' was deleted during the call.", topic=topic.name)
        raise Conflict(f"The dead letters of group '{group.name}' change too fast. Repeat the call.", group=group.name)

    async def _again(self, topic: Topic) -> Topic:
        found = await self._topics.refresh(topic.scope, topic.name)
        if found.incarnation != topic.incarnation:
            raise TopicNotFound(f"Topic '{topic.name}' was recreated during the call.", topic=topic.name)
        return found


def _ready(letters: Sequence[DeadLetter], request: RedriveRequest, tally: Tally) -> list[Ready]:
    ready = []
    for letter in letters:
        try:
            ready.append(made_ready(letter, request))
        except LakelogError as refusal:
            tally.refuse(letter.id, refusal)
    return ready


def _found(stored: StoredDeadLetter, topics: Mapping[int, Topic], cell: int) -> _Found:
    topic = topics[stored.key.pid >> PARTITION_BITS]
    return _Found(topic, to_letter(stored, topic), (cell, stored.key))


def _filter(where: str | None) -> Filter | None:
    return None if where is None else parse(where)


def _size(letter: DeadLetter) -> int:
    """Return about how much memory a dead letter takes."""
    headers = sum(len(name) + len(text) for name, text in (letter.headers or {}).items())
    return len(letter.raw or b"") + len(letter.traceback or "") + len(letter.error or "") + headers + 1000


def _total_size(page: Sequence[_Found]) -> int:
    return sum(_size(found.letter) for found in page)


def _cursor_text(cursor: Cursor) -> str:
    cell, key = cursor
    return f"{cell}-{key.pid}-{key.offset}-{key.epoch}"


def _parse_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    parts = text.split("-")
    if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InvalidRequest(f"{text[:120]!r} is not the end of a page of dead letters. Use `after` of the last page.")
    cell, pid, offset, epoch = map(int, parts)
    return cell, DeadLetterKey(pid=pid, offset=offset, epoch=epoch)
