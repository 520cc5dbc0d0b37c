"""`dead_letters` and `redrive`: what a group has given up, queried and repaired by DataFrame code, and redriven."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelog.client.group_values import Redriven as Done
from lakelog.errors import DeadLetterNotFound, InvalidRequest, RedriveRefused, TooLarge
from lakelog.model.names import check_name
from lakelog.model.rate import rate_of
from lakelog.model.repair import Repair
from lakelog.spark.repair.dead_letter_reader import fingerprint
from lakelog.spark.session import ConnectionSettings, client, connection_to, require_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PER_CALL = 1000
_CALL_BYTES = 2 << 20
_SHOWN = 10
_NEEDED = ("topic", "group", "id")
_CHANGED = ("key", "value", "headers", "fingerprint")
_REFUSALS = (RedriveRefused, DeadLetterNotFound, TooLarge)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveSummary:
    """What a redrive did, or, as a dry run, would do. `sample` are the first ids, `refusals` the first ids and why."""

    redriven: int = 0
    repaired: int = 0
    """Of these: with another value or other headers."""
    refused: int = 0
    sample: tuple[str, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False


class RedriveRow(NamedTuple):
    """One dead letter of the DataFrame, and what is to be changed about it."""

    topic: str
    group: str
    id: str
    repair: Repair | None

    @property
    def size(self) -> int:
        value = self.repair.value if self.repair is not None else None
        return len(self.id) + len(value or b"") + 20


def dead_letters(
    spark: SparkSession, topic: str, group: str, *, url: str | None = None, token: str | None = None
) -> DataFrame:
    """The messages of the topic that the group has given up, as a table: read when it is used, anew each time."""
    connection = connection_to(url, token, spark)
    check_name("group", group)
    require_topic(connection, topic)
    options = {**connection.options, "topic": topic, "deadLetters": group}
    return spark.read.format("lakelog").options(**options).load()


def redrive(
    df: DataFrame,
    *,
    rate: str | float | None = None,
    dry_run: bool = False,
    max_loops: int = 3,
    force: bool = False,
    on_progress: Callable[[RedriveSummary], object] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> RedriveSummary:
    """Publishes the dead letters of the DataFrame again, for their group alone, with the values and headers it has.

    Each is redriven once, also if the call is repeated; lineage and key stay. One that was redriven `max_loops` times
    already is refused, unless forced. `rate` is how many a second, as 100, "100/s" or "30/m".
    """
    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise InvalidRequest(f"A redrive needs the columns {', '.join(_NEEDED)}; {', '.join(missing)} is missing.")
    connection = connection_to(url, token, df.sparkSession)
    names = [name for name in (*_NEEDED, *_CHANGED) if name in df.columns]
    run = _RedriveJob(connection, max_loops=max_loops, force=force, dry_run=dry_run, per_second=parse_rate(rate))
    # A partition at a time: what is not yet redriven need not be in the driver's memory.
    for page in pages(map(wanted_of, df.select(*names).toLocalIterator()), run.per_call):
        run.page(page)
        if on_progress is not None:
            on_progress(run.total)
    return run.total


class _RedriveJob:
    """A redrive under way."""

    def __init__(
        self, connection: ConnectionSettings, *, max_loops: int, force: bool, dry_run: bool, per_second: float | None
    ) -> None:
        self.total = RedriveSummary(dry_run=dry_run)
        self._connection = connection
        self._options = {"max_redrives": max_loops, "force": force, "dry_run": dry_run}
        self._per_second = None if dry_run else per_second
        self._begun = time.monotonic()

    @property
    def per_call(self) -> int:
        """At least one, and about four calls a second."""
        return _PER_CALL if self._per_second is None else max(1, min(_PER_CALL, int(self._per_second / 4)))

    def page(self, page: list[RedriveRow]) -> None:
        if self._per_second is not None:
            time.sleep(max(0.0, self._begun + self.total.redriven / self._per_second - time.monotonic()))
        topic, group = page[0].topic, page[0].group
        repaired = {wanted.id: wanted.repair for wanted in page if wanted.repair is not None}
        dead = client(self._connection).topic(topic).dead_letters(group)
        try:
            done = dead.redrive_these([wanted.id for wanted in page], repaired=repaired, **self._options)  # type: ignore[arg-type]
        except _REFUSALS as error:
            # None of them could go.
            done = Done(refused=len(page), refusals=((str(error.subject.get("id", page[0].id)), error.detail),))
        self._count(done, len(repaired) - min(done.refused, len(repaired)))

    def _count(self, done: Done, repaired: int) -> None:
        total = self.total
        self.total = replace(
            total,
            redriven=total.redriven + done.redriven,
            repaired=total.repaired + repaired,
            refused=total.refused + done.refused,
            sample=(*total.sample, *done.ids)[:_SHOWN],
            refusals=(*total.refusals, *done.refusals)[:_SHOWN],
        )


def wanted_of(row: Any) -> RedriveRow:
    """What a row of the DataFrame asks for: repaired is what differs from what had died."""
    found = row.asDict()
    identity, key, value = found["id"], _bytes(found.get("key")), _bytes(found.get("value"))
    headers = dict(found["headers"]) if found.get("headers") else {}
    if "fingerprint" in found and {"key", "value", "headers"} <= found.keys():
        of_key, _, of_rest = fingerprint(key, value, headers).partition("-")
        key_was, _, rest_was = found["fingerprint"].partition("-")
        if of_key != key_was:
            raise InvalidRequest(
                f"The key of dead letter {identity} was changed. A redrive keeps keys, and so the partition: publish a "
                "new message, and discard the dead letter."
            )
        if of_rest == rest_was:
            return RedriveRow(found["topic"], found["group"], identity, None)
    repair = Repair(value=value, headers=headers if "headers" in found else None)
    changes = repair.value is not None or repair.headers is not None
    return RedriveRow(found["topic"], found["group"], identity, repair if changes else None)


def pages(wanted: Iterable[RedriveRow], per_call: int) -> Iterator[list[RedriveRow]]:
    """Cut where the topic or group changes, and so that each fits into one call; none twice in a page."""
    for _, some in groupby(wanted, key=lambda each: (each.topic, each.group)):
        page: dict[str, RedriveRow] = {}
        size = 0
        for each in some:
            if len(page) == per_call or (page and size + each.size > _CALL_BYTES):
                yield list(page.values())
                page, size = {}, 0
            page.setdefault(each.id, each)
            size += each.size
        yield list(page.values())


def parse_rate(rate: str | float | None) -> float | None:
    """How many a second."""
    return None if rate is None else rate_of(str(rate))


def _bytes(found: Any) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, bytes | bytearray):
        return bytes(found)
    raise InvalidRequest(f"A value is binary or text, not {type(found).__name__}; use to_json to make text of columns.")
