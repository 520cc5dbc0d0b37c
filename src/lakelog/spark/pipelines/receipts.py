"""The receipts of one backfill, which tell a restore of the database that its loads were decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.model.lake import Plan
from lakelog.model.load import Loaded, LoadStatus
from lakelog.model.segment import Segment
from lakelog.objectstore import ObjectStore, open_store
from lakelog.segments.layout import topic_folder
from lakelog.segments.load_receipts import LoadReceipt, read_receipts, write_receipt

if TYPE_CHECKING:
    from lakelog import Lakelog


@dataclass(frozen=True, slots=True)
class Receipts:
    """Writes the receipts of the load with this name."""

    log: Lakelog
    plan: Plan
    name: str
    store_options: Mapping[str, str]

    def write(self, part: Loaded, segments: Sequence[Segment]) -> None:
        """Write the receipt of a part that was loaded with these segments, or that was known before."""
        if part.end > part.first:
            paths = [each.path for each in segments] if part.status is LoadStatus.LOADED else self._paths(part)
            given = {name: getattr(part, name) for name in ("partition", "first", "end", "fingerprint")}
            receipt = LoadReceipt(name=self.name, paths=tuple(paths), **given)
            write_receipt(self._store, self._folder, receipt)

    def complete(self, known: Sequence[Loaded]) -> None:
        """Write the receipts that an earlier run, which was killed after a decision, did not write."""
        if known and self.plan.store is not None:
            written = {(each.name, each.partition) for each in read_receipts(self._store, self._folder)}
            for part in known:
                if (self.name, part.partition) not in written:
                    self.write(part, ())

    def _paths(self, part: Loaded) -> list[str]:
        """Return the files that have messages of the part, and no others."""
        segments = {each.partition: each.segments for each in self.log.lake.plan(self.plan.topic).partitions}
        return [each.path for each in segments[part.partition] if part.first <= each.first and each.end <= part.end]

    @property
    def _store(self) -> ObjectStore:
        assert self.plan.store is not None
        return open_store(self.plan.store, self.store_options)

    @property
    def _folder(self) -> str:
        return topic_folder(self.plan.environment_id, self.plan.incarnation)
