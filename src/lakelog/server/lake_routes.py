"""The part of the routing table that is about whole ranges of messages: plans, watermarks, segments."""

from __future__ import annotations

from lakelog.model.token import Right
from lakelog.server.routing import JSON, Route, rule
from lakelog.wire import lake_shapes as shapes

_READ, _MANAGE = rule(Right.READ), rule(Right.MANAGE)
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

LAKE: tuple[Route, ...] = (
    Route(
        operation="plan",
        method="POST",
        path=f"{_TOPIC}/plan",
        rule=_READ,
        summary="Where the messages of a topic are",
        body={JSON: (shapes.PlanAsk,)},
        body_optional=True,
        example={"since": "2026-01-31T12:00:00Z"},
        answers={200: {JSON: (shapes.PlanShape,)}},
        problems=(404,),
    ),
    Route(
        operation="watermarks",
        method="POST",
        path=f"{_TOPIC}/watermarks",
        rule=_READ,
        summary="How far the partitions of a topic reach; waits for more",
        body={JSON: (shapes.WatermarksAsk,)},
        body_optional=True,
        example={"beyond": {"0": 0}, "wait_ms": 1000},
        answers={200: {JSON: (shapes.WatermarksShape,)}},
        problems=(404,),
    ),
    Route(
        operation="tierable",
        method="POST",
        path=f"{_SEGMENTS}/tierable",
        rule=_MANAGE,
        summary="Which hot batches may become segments",
        body={JSON: (shapes.TierAsk,)},
        body_optional=True,
        example={"segment_bytes": 134_217_728},
        answers={200: {JSON: (shapes.Tierable,)}},
        problems=(404,),
    ),
    Route(
        operation="register_segments",
        method="POST",
        path=_SEGMENTS,
        rule=_MANAGE,
        summary="Make the files of segments known",
        body={JSON: (shapes.Segments,)},
        example=_EXAMPLE,
        answers={200: {JSON: (shapes.RegisterAnswer,)}},
        problems=(404, 409),
    ),
    Route(
        operation="verified_segments",
        method="POST",
        path=f"{_SEGMENTS}/verified",
        rule=_MANAGE,
        summary="Say that the files of segments were read again: from now on readers use them",
        body={JSON: (shapes.Segments,)},
        example=_EXAMPLE,
        answers={200: {JSON: (shapes.Settled,)}},
        problems=(404,),
    ),
    Route(
        operation="unregister_segments",
        method="POST",
        path=f"{_SEGMENTS}/unregister",
        rule=_MANAGE,
        summary="Forget segments that are not verified",
        body={JSON: (shapes.Segments,)},
        example=_EXAMPLE,
        answers={200: {JSON: (shapes.Settled,)}},
        problems=(404,),
    ),
    Route(
        operation="unverified_segments",
        method="GET",
        path=f"{_SEGMENTS}/unverified",
        rule=_MANAGE,
        summary="Segments that are registered and not verified",
        answers={200: {JSON: (shapes.SegmentList,)}},
        problems=(404,),
    ),
    Route(
        operation="look",
        method="POST",
        path="/v1/sweep/look",
        rule=_MANAGE,
        summary="Which files of the object store nobody knows, and may be removed",
        body={JSON: (shapes.LookAsk,)},
        example={"paths": [_PATH]},
        answers={200: {JSON: (shapes.LookAnswer,)}},
    ),
    Route(
        operation="swept",
        method="POST",
        path="/v1/sweep/swept",
        rule=_MANAGE,
        summary="Say which files were removed",
        body={JSON: (shapes.Swept,)},
        example={"paths": [_PATH]},
        answers={204: {}},
    ),
)
