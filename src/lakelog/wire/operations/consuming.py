"""The operations of consumers: lease messages, and answer them. These operations carry bytes or need a fast path."""

from __future__ import annotations

from typing import Any

from lakelog.model import limits
from lakelog.model.group import DEFAULT_LEASE_MS, MAX_LEASE_MS, MAX_OWNER_BYTES, MIN_LEASE_MS
from lakelog.model.lease import AnswersRequest, ConsumeRequest
from lakelog.wire import consume_shapes, frames, leases
from lakelog.wire.operations.operation import JSON, NAME, READ, Media, Operation, Parameter, number, read, text

_IDENTITY = text(MAX_OWNER_BYTES)
_WHOSE = {"topic": "orders", "group": "billing", "owner": "worker-1", "partition": 0}


_PUSH_QUERY = (
    Parameter("topic", NAME, "The topic."),
    Parameter("group", NAME, "The group."),
    Parameter("owner", _IDENTITY, "The consumer that leases the messages and answers them."),
    Parameter(
        "max_in_flight",
        number(1, limits.MAX_BATCH_MESSAGES, 1),
        "The largest number of leased and unanswered messages.",
    ),
    Parameter("lease_ms", number(MIN_LEASE_MS, MAX_LEASE_MS, DEFAULT_LEASE_MS), "The duration of each lease."),
    Parameter("member_id", _IDENTITY, "The member of the group that makes the call, if it is one."),
    Parameter("generation", number(0, 2**62), "The generation that the member knows."),
    Parameter("start_from", {"type": "string", "maxLength": 40}, "`earliest`, `latest`, `none`, an offset, or a time."),
    Parameter("order", {"enum": ["key", "partition", "none"]}, "The group's order."),
    Parameter("filter", {"type": "string"}, "The group's filter."),
    Parameter("dead_letter", {"type": "boolean"}, "True if the group keeps dead letters."),
    Parameter("assignor", {"enum": ["range", "round-robin", "sticky", "cooperative-sticky"]}, "The group's assignor."),
    Parameter("window", number(1, 10_000), "The group's window."),
)


def _answer(name: str, path: str, shape: type, summary: str, **more: object) -> Operation[Any, Any]:
    reply = consume_shapes.Extended if name == "extend" else None
    example = {**_WHOSE, "token": 4711, "offset": 812, **more}
    return read(name, path, summary, shape, reply, method="POST", example=example, problems=(404, 409))


ANSWERS = read(
    "answers",
    "/v1/topics/{topic}/groups/{group}/answers",
    "Answer many leased messages in one call",
    AnswersRequest,
    consume_shapes.AnswersReply,
    method="POST",
    example={
        "owner": "worker-1",
        "answers": [{"verb": "ack", "partition": 0, "token": 4711, "offsets": [812, [815, 830]]}],
    },
    problems=(404, 409),
)

# The data routes first: they are also matched by hand, before all others.
CONSUMING: tuple[Operation[Any, Any], ...] = (
    Operation(
        name="consume",
        method="POST",
        path="/v1/consume",
        rights=READ,
        summary="Lease messages",
        example={"topic": "orders", "group": "billing", "owner": "worker-1", "max_messages": 100},
        problems=(404, 406, 409),
        request=ConsumeRequest,
        media=Media(
            replies={200: {JSON: (consume_shapes.ConsumeReply,), leases.MEDIA_TYPE: (), frames.ARROW_MEDIA_TYPE: ()}},
            query=(
                Parameter(
                    "repeat",
                    {"type": "boolean", "default": False},
                    "True if the call was sent before with the same `request_id`, and its response was lost.",
                ),
            ),
        ),
    ),
    Operation(
        name="push",
        method="GET",
        path="/v1/consume",
        rights=READ,
        summary="Be pushed leased messages, until you hang up",
        problems=(404, 406, 409),
        request=consume_shapes.PushRequest,
        media=Media(
            replies={200: {"application/x-ndjson": (consume_shapes.PushedShape,), "text/event-stream": ()}},
            query=_PUSH_QUERY,
        ),
    ),
    _answer("ack", "/v1/ack", consume_shapes.Ack, "Finish leased messages"),
    _answer("ack_cumulative", "/v1/ack-cumulative", consume_shapes.AckCumulative, "Finish all up to an offset"),
    _answer("nack", "/v1/nack", consume_shapes.Nack, "Report that messages failed", reason="timeout"),
    _answer("discard", "/v1/discard", consume_shapes.Discard, "Finish messages as not wanted", reason="obsolete"),
    _answer("extend", "/v1/extend", consume_shapes.Extend, "Keep a lease for longer", lease_ms=30_000),
    ANSWERS,
)
