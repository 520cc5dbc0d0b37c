"""The name and the id of a streaming query, as its group shows them.

Spark tells them to tasks, but not to the process that plans a source. The first task of a run therefore reports them,
with a heartbeat of the member that the planning process joined.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from pyspark import TaskContext

from lakelog.errors import LakelogError
from lakelog.spark.reading.batch_reader import SplitPartition
from lakelog.spark.session import ConnectionSettings, client

_QUERY, _DESCRIPTION = "sql.streaming.queryId", "spark.job.description"
_UNSHOWN = re.compile(r"[^A-Za-z0-9._ :,-]")
_NAME_LENGTH = 100

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberName:
    """A member whose query is not known yet. It is plain data, because Spark sends it to a task."""

    connection: ConnectionSettings
    group: str
    member_id: str
    generation: int

    def report(self) -> None:
        """Tell the group which query the member is. A failure is logged: the query needs no name to run."""
        label = query_label(TaskContext.get())
        if label is None:
            return
        try:
            group = client(self.connection).group(self.group)
            group.heartbeat(self.member_id, self.generation, client=label)
        except LakelogError as error:
            _log.info("Could not report the query of member '%s' of group '%s': %s", self.member_id, self.group, error)


class NamingPartition(SplitPartition):
    """A split whose task reports the query first."""

    def __init__(self, split: SplitPartition, member: MemberName) -> None:
        super().__init__(split.place, split.split, split.keys)
        self.member = member


def query_label(context: TaskContext | None) -> str | None:
    """Return what a group shows of the query of a task, such as `spark: totals, id 5a7c…`; None without a query."""
    query = context.getLocalProperty(_QUERY) if context is not None else None
    if context is None or not query:
        return None
    # Spark describes the jobs of a micro-batch in lines: the name, which may be empty, "id = …", "runId = …".
    name, is_sparks, _ = (context.getLocalProperty(_DESCRIPTION) or "").partition(f"\nid = {query}")
    shown = f"{_UNSHOWN.sub('_', name)[:_NAME_LENGTH]}, " if name and is_sparks else ""
    return f"spark: {shown}id {_UNSHOWN.sub('_', query)}"
