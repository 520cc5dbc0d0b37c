"""Problems (RFC 9457): how an error looks over HTTP, and which class a client raises for it."""

from __future__ import annotations

from typing import Any

import msgspec

from lakelog import errors
from lakelog.errors import LakelogError

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[LakelogError], int] = {
    errors.LakelogError: 500,
    errors.InvalidRequest: 422,
    errors.InvalidName: 422,
    errors.InvalidBatch: 422,
    errors.UnsupportedFormat: 422,
    errors.InvalidFilter: 422,
    errors.TooLarge: 413,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.TopicNotFound: 404,
    errors.PartitionNotFound: 404,
    errors.GroupNotFound: 404,
    errors.ObjectNotFound: 404,
    errors.DeadLetterNotFound: 404,
    errors.PipelineRunNotFound: 404,
    errors.Conflict: 409,
    errors.TopicExists: 409,
    errors.IdempotencyConflict: 409,
    errors.SequenceRefused: 409,
    errors.EpochChanged: 409,
    errors.LeaseLost: 409,
    errors.OutcomeForgotten: 409,
    errors.NotOwner: 409,
    errors.OutOfOrder: 409,
    errors.StaleGeneration: 409,
    errors.UnknownMember: 409,
    errors.GroupKindDiffers: 409,
    errors.GroupSettingsDiffer: 409,
    errors.GroupBusy: 409,
    errors.NoPosition: 409,
    errors.PositionRefused: 409,
    errors.RedriveRefused: 409,
    errors.PipelineBusy: 409,
    errors.PipelineRunOver: 409,
    errors.OffsetOutOfRange: 416,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.ObjectStoreUnavailable: 503,
    errors.SegmentDamaged: 500,
    errors.OutcomeUnknown: 503,
    errors.PartlyPublished: 207,
    errors.ConfigurationError: 500,
    errors.NotDurable: 500,
    errors.SchemaOutOfDate: 503,
    errors.Closed: 503,
}

_CLASSES = {kind.code: kind for kind in errors.all_errors()}
_FIXED = ("type", "title", "status", "code", "detail", "retryable")

# Callers need no token to make a server ask its database: where that is, and who it refuses, is for the server's log.
_DATABASE_DETAILS: dict[type[LakelogError], str] = {
    errors.Unavailable: "The server's database is not available.",
    errors.OutcomeUnknown: "The server lost the connection to its database. The call may or may not have been written.",
    errors.ConfigurationError: "The server's database refuses the server. Look for the cause in the server's log.",
}


def problem_of(error: LakelogError) -> dict[str, Any]:
    """Return the problem that tells a caller about `error`; the subject's fields stand beside the fixed ones.

    An error about the server's database does not say where the database is.
    """
    kind = type(error)
    if "database" in error.subject and kind in _DATABASE_DETAILS:
        subject = {name: value for name, value in error.subject.items() if name != "database"}
        error = kind(_DATABASE_DETAILS[kind], **subject)
    title = (kind.__doc__ or "").strip().splitlines()[0]
    fixed = {
        "type": f"urn:lakelog:problem:{kind.code}",
        "title": title,
        "status": STATUS[kind],
        "code": kind.code,
        "detail": error.detail,
        "retryable": kind.retryable,
    }
    return {**{name: value for name, value in error.subject.items() if name not in _FIXED}, **fixed}


def error_of(problem: dict[str, Any]) -> LakelogError:
    """The error that `problem` tells about; an unknown code gives the base class."""
    kind = _CLASSES.get(str(problem.get("code")), LakelogError)
    subject = {
        name: value
        for name, value in problem.items()
        if name not in _FIXED and isinstance(value, str | int | float | bool | None)
    }
    return kind(str(problem.get("detail") or ""), **subject)


def encode_problem(error: LakelogError) -> bytes:
    return msgspec.json.encode(problem_of(error))
