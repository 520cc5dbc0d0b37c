"""Verifies topics: every segment is read from the object store, and every hot batch through the server in short calls.

A segment is compared with its hashes. Offsets must be dense from the log start to the high watermark. A failure
is looked at again with a new plan: compaction, tiering and retention may have moved the messages in between.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelog.client.verifying.problems import (
    OffsetRange,
    Problem,
    ProblemKind,
    hot_ranges,
    overlaps,
    sampled,
    segments_of,
)
from lakelog.errors import (
    ConfigurationError,
    InvalidBatch,
    LakelogError,
    ObjectNotFound,
    ObjectStoreUnavailable,
    OffsetOutOfRange,
    SegmentDamaged,
    Unavailable,
    UnsupportedFormat,
    first_line,
)
from lakelog.model.lake import ORPHAN_AGE, Plan
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.layout import parse_segment_path
from lakelog.segments.reader import verify

if TYPE_CHECKING:
    from lakelog.client._sync.lakelog import Lakelog

UNUSED_AGE = 2 * ORPHAN_AGE
"""A daily sweep deletes a file within two days, so an older one says that no sweep runs."""
_PAGE = 1000
_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The parts to read.

    Attributes:
        share: The share of segments that are read, from 0 to 1. Ranges, hot messages and unused files are always
            checked.
        unused_age: A file that no segment uses is a problem after this time.
        seed: Chooses the segments of a sample.
    """

    share: float = 1.0
    unused_age: timedelta = UNUSED_AGE
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of a verification.

    Attributes:
        topics: Topics that were verified.
        segments: Segments that were read.
        cold: Messages in these segments.
        hot: Messages that were read from hot batches.
        bytes: Size of the segments.
        files: Files in the object store.
        unused: Files that no segment uses, whatever their age.
        planned: Messages to read.
        problems: The problems.
    """

    topics: int = 0
    segments: int = 0
    cold: int = 0
    hot: int = 0
    bytes: int = 0
    files: int = 0
    unused: int = 0
    planned: int = 0
    problems: tuple[Problem, ...] = ()


Watch = Callable[[str, Verified], None]


@dataclass(kw_only=True)
class Verification:
    """One verification of some topics. `watch` is called with the topic and the result so far."""

    log: Lakelog
    options: VerifyOptions = field(default_factory=VerifyOptions)
    watch: Watch = lambda topic, done: None
    store_options: Mapping[str, str] | None = None
    done: Verified = field(default_factory=Verified, init=False)

    def run(self, topics: Sequence[str], *, with_files: bool) -> Verified:
        """Verify the topics, and with `with_files` look for unused files of the environment."""
        plans = [self.log.lake.plan(topic) for topic in topics]
        self._note("", planned=sum(map(self._planned, plans)))
        for plan in plans:
            self._topic(plan)
        if with_files and plans and plans[0].store is not None:
            self._files(plans[0], self._open(plans[0]))
        return self.done

    # Segments ---------------------------------------------------------------------------------------------------------

    def _chosen(self, plan: Plan) -> list[Segment]:
        """Return the segments of a topic to read; the same ones at each call."""
        segments = [segment for partition in plan.partitions for segment in segments_of(partition)]
        return sampled(segments, self.options.share, random.Random(f"{self.options.seed} {plan.topic}"))

    def _planned(self, plan: Plan) -> int:
        hot = sum(each.end - each.first for partition in plan.partitions for each in hot_ranges(partition))
        return hot + sum(segment.end - segment.first for segment in self._chosen(plan))

    def _topic(self, plan: Plan) -> None:
        chosen = self._chosen(plan)
        problems: list[Problem] = []
        if chosen:
            store = self._open(plan)
            known = {segment.file_hash: segment.path for part in plan.partitions for segment in segments_of(part)}
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="verify") as threads:
                checks = threads.map(lambda segment: _checked(store, plan.topic, segment, known), chosen)
                for segment, problem in zip(chosen, checks, strict=True):
                    problems += [problem] if problem is not None else []
                    self._note(
                        plan.topic,
                        segments=self.done.segments + 1,
                        cold=self.done.cold + segment.end - segment.first,
                        bytes=self.done.bytes + segment.bytes,
                    )
        for partition in plan.partitions:
            problems += overlaps(plan.topic, partition)
            for wanted in hot_ranges(partition):
                problems += self._hot(plan, partition.partition, wanted)
        if problems:
            problems = self._still(plan, problems)
        self._note(plan.topic, topics=self.done.topics + 1, problems=(*self.done.problems, *problems))

    def _still(self, plan: Plan, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems that still apply: of files that are still used, and of offsets that still exist."""
        now = self.log.lake.plan(plan.topic)
        if now.incarnation != plan.incarnation:
            return []
        used = {segment.path for partition in now.partitions for segment in segments_of(partition)}
        starts = {partition.partition: partition.log_start for partition in now.partitions}
        return [
            problem
            for problem in problems
            if (not problem.path or problem.path in used) and (problem.end or 0) > starts[problem.partition or 0]
        ]

    # Hot batches ------------------------------------------------------------------------------------------------------

    def _hot(self, plan: Plan, partition: int, wanted: OffsetRange) -> Iterator[Problem]:
        """Read a range through the server, and yield its gaps, and what cannot be read."""
        at = wanted.first
        place = {"topic": plan.topic, "partition": partition}
        try:
            for batch in self.log.lake.read_range(plan.topic, partition, at, wanted.end, incarnation=plan.incarnation):
                batch.validate(full=True)
                first = batch.column("offset")[0].as_py()
                if first != at:
                    yield _problem(ProblemKind.GAP, place, at, first, "No batch holds these offsets.")
                at = first + batch.num_rows
                self._note(plan.topic, hot=self.done.hot + batch.num_rows)
        except OffsetOutOfRange as error:
            start = error.subject.get("log_start")
            if isinstance(start, int) and start > at:
                # Retention removed the messages before they were read.
                yield from self._hot(plan, partition, OffsetRange(first=start, end=max(start, wanted.end)))
                return
            yield _problem(ProblemKind.GAP, place, at, wanted.end, error.detail)
        except ObjectStoreUnavailable:
            raise
        except Unavailable as error:
            # A server that has no batch for an offset of the log refuses it until the client gives up.
            self.log.lake.watermarks(plan.topic)
            detail = f"The server answers, and finds no batch at offset {at}: {error.detail}"
            yield _problem(ProblemKind.GAP, place, at, wanted.end, detail)
        except (SegmentDamaged, InvalidBatch, UnsupportedFormat) as error:
            yield _problem(ProblemKind.DAMAGED, place, at, wanted.end, error.detail)
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
            detail = f"A batch cannot be decoded: {first_line(error)} What follows in the range was not read."
            yield _problem(ProblemKind.DAMAGED, place, at, wanted.end, detail)

    # Files ------------------------------------------------------------------------------------------------------------

    def _files(self, plan: Plan, store: ObjectStore) -> None:
        """Look for files that no segment has used for long. Their names and ages are in the catalog."""
        paths = (each.path for each in store.list(f"e{plan.environment_id}") if parse_segment_path(each.path))
        for page in _pages(paths):
            self.log.lake.look(page, min_age=timedelta(0))
            # The first look has recorded files that no look had seen.
            unused = self.log.lake.look(page, min_age=timedelta(0))
            old = self.log.lake.look(unused, min_age=self.options.unused_age) if unused else []
            self._note(
                "",
                files=self.done.files + len(page),
                unused=self.done.unused + len(unused),
                problems=(*self.done.problems, *(_orphan(path, self.options.unused_age) for path in sorted(old))),
            )

    def _open(self, plan: Plan) -> ObjectStore:
        if plan.store is None:
            raise ConfigurationError(
                f"Topic '{plan.topic}' has files, and the server has no object store. Set LAKELOG_OBJECT_STORE for it."
            )
        return open_store(plan.store, self.store_options)

    def _note(self, topic: str, **figures: object) -> None:
        self.done = replace(self.done, **figures)  # type: ignore[arg-type]
        self.watch(topic, self.done)


def verify_topics(
    log: Lakelog, topics: Sequence[str] = (), *, options: VerifyOptions | None = None, watch: Watch | None = None
) -> Verified:
    """Verify topics, and return what was read and the problems.

    Args:
        log: The client. Its token needs the rights to read and to manage.
        topics: The topics. Default: all, and unused files of the environment.
        options: The parts to read. Default: everything.
        watch: A function that is called with the topic and the result so far.
    """
    run = Verification(log=log, options=options or VerifyOptions())
    if watch is not None:
        run.watch = watch
    return run.run(topics or [info.name for info in log.topics()], with_files=not topics)


def _checked(store: ObjectStore, topic: str, segment: Segment, known: Mapping[str, str]) -> Problem | None:
    place = {"topic": topic, "partition": segment.partition, "path": segment.path}
    try:
        verify(store, segment)
    except ObjectNotFound as error:
        return _problem(ProblemKind.MISSING, place, segment.first, segment.end, error.detail)
    except (SegmentDamaged, UnsupportedFormat) as error:
        other = known.get(_file_hash(store, segment.path) or "")
        if other is not None and other != segment.path:
            detail = f"The file has the bytes of {other}."
            return _problem(ProblemKind.SWAPPED, place, segment.first, segment.end, detail)
        return _problem(ProblemKind.DAMAGED, place, segment.first, segment.end, error.detail)
    return None


def _file_hash(store: ObjectStore, path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        for chunk in store.chunks(path, store.size(path)):
            digest.update(chunk)
    except LakelogError:
        return None
    return digest.hexdigest()


def _problem(kind: ProblemKind, place: Mapping[str, object], first: int, end: int, detail: str) -> Problem:
    return Problem(kind=kind, first=first, end=end, detail=detail, **place)  # type: ignore[arg-type]


def _orphan(path: str, age: timedelta) -> Problem:
    hours = age // timedelta(hours=1)
    return Problem(
        kind=ProblemKind.ORPHAN,
        path=path,
        detail=f"No segment has used the file for {hours} hours or more. `lakelog pipelines run sweep` deletes it.",
    )


def _pages(paths: Iterable[str]) -> Iterator[list[str]]:
    found = iter(paths)
    while page := list(islice(found, _PAGE)):
        yield page
