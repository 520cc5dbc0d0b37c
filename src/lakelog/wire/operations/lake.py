"""The operations about whole ranges of messages: plans, watermarks, segments, sweeping."""

from __future__ import annotations

from lakelog.model import lake
from lakelog.wire.operations.operation import MANAGE, READ, Audit, Operation

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

PLAN = Operation(
    name="plan",
    method="POST",
    path=f"{_TOPIC}/plan",
    rights=READ,
    summary="Find the segments and hot batches that hold the messages of a topic",
    request=lake.PlanRequest,
    reply=lake.Plan,
    is_read=True,
    example={"since": "2026-01-31T12:00:00Z"},
    problems=(404,),
)
WATERMARKS = Operation(
    name="watermarks",
    method="POST",
    path=f"{_TOPIC}/watermarks",
    rights=READ,
    summary="Return the ends of a topic's partitions, and wait for them to grow",
    request=lake.WatermarksRequest,
    reply=lake.Watermarks,
    is_read=True,
    waits=True,
    example={"beyond": {"0": 0}, "wait_ms": 1000},
    problems=(404,),
)
TIERABLE = Operation(
    name="tierable",
    method="POST",
    path=f"{_SEGMENTS}/tierable",
    rights=MANAGE,
    summary="List the hot batches that may become segments",
    request=lake.TierableRequest,
    reply=lake.Tierable,
    is_read=True,
    example={"segment_bytes": 134_217_728},
    problems=(404,),
)
REGISTER_SEGMENTS = Operation(
    name="register_segments",
    method="POST",
    path=_SEGMENTS,
    rights=MANAGE,
    summary="Register the files of segments",
    request=lake.SegmentsRequest,
    reply=lake.Registrations,
    example=_EXAMPLE,
    audit=Audit(text="registered segments of topic {topic}", counted=("segments",)),
    problems=(404, 409),
)
VERIFIED_SEGMENTS = Operation(
    name="verified_segments",
    method="POST",
    path=f"{_SEGMENTS}/verified",
    rights=MANAGE,
    summary="Mark segments as verified, so that readers use them",
    request=lake.SegmentsRequest,
    reply=lake.SegmentResults,
    example=_EXAMPLE,
    audit=Audit(text="marked segments of topic {topic} as verified", counted=("segments",)),
    problems=(404,),
)
UNREGISTER_SEGMENTS = Operation(
    name="unregister_segments",
    method="POST",
    path=f"{_SEGMENTS}/unregister",
    rights=MANAGE,
    summary="Unregister segments that are not verified",
    request=lake.SegmentsRequest,
    reply=lake.SegmentResults,
    example=_EXAMPLE,
    audit=Audit(text="unregistered segments of topic {topic}", counted=("segments",)),
    problems=(404,),
)
UNVERIFIED_SEGMENTS = Operation(
    name="unverified_segments",
    method="GET",
    path=f"{_SEGMENTS}/unverified",
    rights=MANAGE,
    summary="List the segments that are registered and not verified",
    request=lake.UnverifiedRequest,
    reply=lake.Segments,
    problems=(404,),
)
FIND_ORPHANS = Operation(
    name="look",
    method="POST",
    path="/v1/sweep/look",
    rights=MANAGE,
    summary="List the files of the object store that belong to no segment and may be removed",
    request=lake.FindOrphansRequest,
    reply=lake.Orphans,
    example={"paths": [_PATH]},
)
SWEPT: Operation[lake.SweptRequest, None] = Operation(
    name="swept",
    method="POST",
    path="/v1/sweep/swept",
    rights=MANAGE,
    summary="Report which files were removed",
    request=lake.SweptRequest,
    example={"paths": [_PATH]},
    audit=Audit(text="removed unused files of the object store", counted=("paths",)),
)

LAKE = (
    PLAN,
    WATERMARKS,
    TIERABLE,
    REGISTER_SEGMENTS,
    VERIFIED_SEGMENTS,
    UNREGISTER_SEGMENTS,
    UNVERIFIED_SEGMENTS,
    FIND_ORPHANS,
    SWEPT,
)
