"""`dead_letters` and `redrive`: query, repair and redrive the dead letters of a group with DataFrames."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelog.errors import DeadLetterNotFound, InvalidRequest, RedriveRefused, TooLarge
from lakelog.model.dead_letters import DEFAULT_MAX_REDRIVES, Redriven, RefusedDeadLetter, Repair
from lakelog.model.names import check_name
from lakelog.model.rate import rate_of
from lakelog.spark.repair.dead_letter_reader import fingerprint, had_value
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
    """The result of a redrive, or of a dry run.

    Attributes:
        redriven: Dead letters that were published again.
        repaired: How many of the redriven dead letters had a changed value or changed headers.
        refused: Dead letters that could not be redriven.
        sample: The first ids of redriven dead letters.
        refusals: The first ids of refused dead letters, each with the reason.
        dry_run: True if this was a dry run, which publishes nothing.
    """

    redriven: int = 0
    repaired: int = 0
    refused: int = 0
    sample: tuple[str, ...] = ()
    refusals: tuple[RefusedDeadLetter, ...] = ()
    dry_run: bool = False


class RedriveRow(NamedTuple):
    """A dead letter of the DataFrame, and the changes to it."""

    topic: str
    group: str
    id: str
    repair: Repair | None
    refusal: str | None = None
    """Why the row is refused, without a call to the server."""

    @property
    def size(self) -> int:
        value = self.repair.value if self.repair is not None else None
        return len(self.id) + len(value or b"") + 20


def dead_letters(
    spark: SparkSession, topic: str, group: str, *, url: str | None = None, token: str | None = None
) -> DataFrame:
    """Return the dead letters of a group in a topic as a DataFrame, which reads them each time that it is evaluated.

    Args:
        spark: The session.
        topic: The topic of the messages.
        group: The group that could not handle them.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.
    """
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
    max_loops: int = DEFAULT_MAX_REDRIVES,
    force: bool = False,
    on_progress: Callable[[RedriveSummary], object] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> RedriveSummary:
    """Publish the dead letters of a DataFrame again, for their group only.

    The messages have the values and headers of the DataFrame. A row whose value became NULL is refused. Each dead
    letter is redriven once, even if the call is repeated. Its key and lineage are kept.

    Args:
        df: Rows of `dead_letters`, with or without changes to `value` and `headers`.
        rate: The highest number of messages per second, such as 100, "100/s" or "30/m". Default: no limit.
        dry_run: Only count what would be redriven. Default: False.
        max_loops: How often a message may be redriven; more is refused. Default: 3.
        force: Redrive messages beyond `max_loops` too. Default: False.
        on_progress: A function that is called with the result so far after each call to the server.
        url: The URL of the server. Default: that of the session, then `LAKELOG_URL`, then the server of `lakelog dev`.
        token: The token. Default: that of the session, then `LAKELOG_TOKEN`, then the token of `lakelog dev`.

    Raises:
        InvalidRequest: If a required column is missing, or if a key was changed.
    """
    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise InvalidRequest(f"A redrive needs the columns {', '.join(_NEEDED)}; {', '.join(missing)} is missing.")
    connection = connection_to(url, token, df.sparkSession)
    names = [name for name in (*_NEEDED, *_CHANGED) if name in df.columns]
    run = _RedriveJob(connection, max_loops=max_loops, force=force, dry_run=dry_run, per_second=parse_rate(rate))
    # One partition at a time, so that the driver does not hold all dead letters in memory.
    for page in pages(map(wanted_of, df.select(*names).toLocalIterator()), run.per_call):
        run.page(page)
        if on_progress is not None:
            on_progress(run.total)
    return run.total


class _RedriveJob:
    """A running redrive."""

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
        """Return the dead letters per call: at least one, and about four calls per second if there is a rate."""
        return _PER_CALL if self._per_second is None else max(1, min(_PER_CALL, int(self._per_second / 4)))

    def page(self, rows: list[RedriveRow]) -> None:
        refused = [RefusedDeadLetter(id=row.id, reason=row.refusal) for row in rows if row.refusal is not None]
        self._count(Redriven(refused=len(refused), refusals=tuple(refused)), 0)
        page = [row for row in rows if row.refusal is None]
        if page:
            self._send(page)

    def _send(self, page: list[RedriveRow]) -> None:
        if self._per_second is not None:
            time.sleep(max(0.0, self._begun + self.total.redriven / self._per_second - time.monotonic()))
        topic, group = page[0].topic, page[0].group
        repaired = {wanted.id: wanted.repair for wanted in page if wanted.repair is not None}
        dead = client(self._connection).topic(topic).dead_letters(group)
        try:
            done = dead.redrive_these([wanted.id for wanted in page], repaired=repaired, **self._options)  # type: ignore[arg-type]
        except _REFUSALS as error:
            # The server refused the whole page.
            refusal = RefusedDeadLetter(id=str(error.subject.get("id", page[0].id)), reason=error.detail)
            done = Redriven(refused=len(page), refusals=(refusal,))
        self._count(done, len(repaired) - min(done.refused, len(repaired)))

    def _count(self, done: Redriven, repaired: int) -> None:
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
    """Return the request for a row of the DataFrame. A value or headers that differ from the original are a repair."""
    found = row.asDict()
    identity, key, value = found["id"], _bytes(found.get("key")), _bytes(found.get("value"))
    headers = dict(found["headers"]) if found.get("headers") else {}
    mark: str | None = found.get("fingerprint")
    if "value" in found and value is None and (mark is None or had_value(mark)):
        return RedriveRow(found["topic"], found["group"], identity, None, _no_value(identity, mark))
    if mark is not None and {"key", "value", "headers"} <= found.keys():
        of_key, _, of_rest = fingerprint(key, value, headers).partition("-")
        key_was, _, rest_was = mark.partition("-")
        if of_key != key_was:
            raise InvalidRequest(
                f"The key of dead letter {identity} was changed. A redrive keeps keys and partitions. Publish a "
                "new message instead, and discard the dead letter."
            )
        if of_rest == rest_was:
            return RedriveRow(found["topic"], found["group"], identity, None)
    repair = None
    if value is not None or "headers" in found:
        repair = Repair(value=value, headers=headers if "headers" in found else None)
    return RedriveRow(found["topic"], found["group"], identity, repair)


def _no_value(identity: str, mark: str | None) -> str:
    kept = "" if mark is not None else " If the message never had a value, keep the column 'fingerprint'."
    return (
        f"Column 'value' of dead letter {identity} is NULL, so the repair has no value. Repair the expression, or "
        f"remove the row.{kept}"
    )


def pages(wanted: Iterable[RedriveRow], per_call: int) -> Iterator[list[RedriveRow]]:
    """Yield pages that fit into one call, with one topic and group and no duplicates each."""
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
    """Return a rate as messages per second."""
    return None if rate is None else rate_of(str(rate))


def _bytes(found: Any) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, bytes | bytearray):
        return bytes(found)
    raise InvalidRequest(f"A value must be binary or text, not {type(found).__name__}. Use to_json to convert columns.")
