"""The operations about topics as Iceberg tables, for the pipeline that writes their metadata.

`iceberg_catalog` has the operations for engines that read the tables.
"""

from __future__ import annotations

from lakelog.model import iceberg
from lakelog.wire.operations.operation import Audit, manage

_TABLE = "/v1/topics/{topic}/iceberg"
_METADATA = "e1/t1/metadata/00001-0123456789abcdef.metadata.json"

ICEBERG_CHANGES = manage(
    "iceberg_changes",
    f"{_TABLE}/changes",
    "Return what the Iceberg table of a topic lacks",
    iceberg.IcebergChangesRequest,
    iceberg.IcebergChanges,
    method="GET",
    problems=(404,),
)
COMMIT_ICEBERG = manage(
    "commit_iceberg",
    _TABLE,
    "Make a metadata file the newest one of a topic's Iceberg table",
    iceberg.IcebergCommit,
    iceberg.IcebergTable,
    is_repeatable=True,
    example={
        "incarnation": 1,
        "version": 0,
        "metadata": _METADATA,
        "added": [_METADATA],
        "removed": [],
        "oldest": 1,
    },
    audit=Audit(text="committed the Iceberg table of topic {topic}", counted=("added", "removed")),
)
