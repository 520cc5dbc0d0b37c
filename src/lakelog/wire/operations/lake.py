"""The operations about whole ranges of messages: plans, watermarks, segments, sweeping."""

from __future__ import annotations

from lakelog.model import lake, load
from lakelog.wire.operations.operation import Audit, Operation, manage, read

_TOPIC = "/v1/topics/{topic}"
_SEGMENTS = f"{_TOPIC}/segments"
_PATH = "e1/t1/p00000/00000000000000000000-00000000000000001000-0123456789abcdef.parquet"
_EXAMPLE = {
    "segments": [
        {
            "partition": 0,
            "first": 0,
            "end": 1000,
            "path": _PATH,
            "bytes": 65536,
            "file_hash": "0" * 64,
            "content_hash": "0" * 64,
            "first_at": "2026-01-31T12:00:00Z",
            "last_at": "2026-01-31T12:30:00Z",
            "epoch": 0,
        }
    ]
}

PLAN = read(
    "plan",
    f"{_TOPIC}/plan",
    "Find the segments and hot batches that hold the messages of a topic",
    lake.PlanRequest,
    lake.Plan,
    method="POST",
    is_read=True,
    example={"since": "2026-01-31T12:00:00Z"},
)
WATERMARKS = read(
    "watermarks",
    f"{_TOPIC}/watermarks",
    "Return the ends of a topic's partitions, and wait for them to grow",
    lake.WatermarksRequest,
    lake.Watermarks,
    method="POST",
    is_read=True,
    waits=True,
    example={"beyond": {"0": 0}, "wait_ms": 1000},
)
TIERABLE = manage(
    "tierable",
    f"{_SEGMENTS}/tierable",
    "List the hot batches that may become segments",
    lake.TierableRequest,
    lake.Tierable,
    is_read=True,
    example={"segment_bytes": 134_217_728},
    problems=(404,),
)
REGISTER_SEGMENTS = manage(
    "register_segments",
    _SEGMENTS,
    "Register the files of segments",
    lake.SegmentsRequest,
    lake.Registrations,
    example=_EXAMPLE,
    audit=Audit(text="registered segments of topic {topic}", counted=("segments",), in_cells=True),
)
VERIFIED_SEGMENTS = manage(
    "verified_segments",
    f"{_SEGMENTS}/verified",
    "Mark segments as verified, so that readers use them",
    lake.SegmentsRequest,
    lake.SegmentResults,
    example=_EXAMPLE,
    audit=Audit(text="marked segments of topic {topic} as verified", counted=("segments",), in_cells=True),
    problems=(404,),
)
UNREGISTER_SEGMENTS = manage(
    "unregister_segments",
    f"{_SEGMENTS}/unregister",
    "Unregister segments that are not verified",
    lake.SegmentsRequest,
    lake.SegmentResults,
    example=_EXAMPLE,
    audit=Audit(text="unregistered segments of topic {topic}", counted=("segments",), in_cells=True),
    problems=(404,),
)
REPLACE_SEGMENTS = manage(
    "replace_segments",
    f"{_SEGMENTS}/replace",
    "Replace verified segments by others that hold the same messages",
    lake.ReplaceSegmentsRequest,
    lake.Registered,
    example={"old": _EXAMPLE["segments"], "new": _EXAMPLE["segments"]},
    audit=Audit(text="replaced segments of topic {topic}", counted=("old", "new"), in_cells=True),
)
UNVERIFIED_SEGMENTS = manage(
    "unverified_segments",
    f"{_SEGMENTS}/unverified",
    "List the segments that are registered and not verified",
    lake.UnverifiedRequest,
    lake.Segments,
    method="GET",
    problems=(404,),
)
LOAD = manage(
    "load",
    f"{_TOPIC}/loads",
    "Append segments to partitions, as history that was not published",
    load.LoadRequest,
    load.LoadResults,
    example={
        "name": "orders-2025",
        "incarnation": 1,
        "parts": [{"partition": 0, "first": 0, "fingerprint": "0" * 32, **_EXAMPLE}],
    },
    audit=Audit(text="loaded {name} into topic {topic}", counted=("parts",), in_cells=True),
)
FIND_LOAD = manage(
    "find_load",
    f"{_TOPIC}/loads/{{name}}",
    "List the partitions in which a load was decided",
    load.FindLoadRequest,
    load.LoadResults,
    method="GET",
    problems=(404,),
)
FIND_ORPHANS = manage(
    "look",
    "/v1/sweep/look",
    "List the files of the object store that belong to no segment and no table, and may be removed",
    lake.FindOrphansRequest,
    lake.Orphans,
    example={"paths": [_PATH]},
    problems=(),
)
SWEPT: Operation[lake.SweptRequest, None] = manage(
    "swept",
    "/v1/sweep/swept",
    "Report which files were removed",
    lake.SweptRequest,
    None,
    example={"paths": [_PATH]},
    audit=Audit(text="removed unused files of the object store", counted=("paths",), in_cells=True),
    problems=(),
)
