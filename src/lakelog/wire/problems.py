"""Problems (RFC 9457): the form of an error over HTTP, and the class that a client raises for it."""

from __future__ import annotations

from typing import Any

from lakelog import errors
from lakelog.errors import LakelogError

MEDIA_TYPE = "application/problem+json"

_STATUS_OF_FAMILY: dict[type[LakelogError], int] = {
    errors.LakelogError: 500,
    errors.InvalidRequest: 422,
    errors.TooLarge: 413,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.OffsetOutOfRange: 416,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.OutcomeUnknown: 503,
    errors.PartlyPublished: 207,
    errors.SchemaOutOfDate: 503,
    errors.Closed: 503,
}
STATUS: dict[type[LakelogError], int] = {
    kind: next(_STATUS_OF_FAMILY[base] for base in kind.__mro__ if base in _STATUS_OF_FAMILY)
    for kind in errors.all_errors()
}
"""The status of each error: its own, or that of the nearest class above it."""

_CLASSES = {kind.code: kind for kind in errors.all_errors()}
_FIXED = ("type", "title", "status", "code", "detail", "retryable")

# Callers need no token to make a server ask its database: where that is, and who it refuses, is for the server's log.
_DATABASE_DETAILS: dict[type[LakelogError], str] = {
    errors.Unavailable: "The server's database is not available.",
    errors.OutcomeUnknown: "The server lost the connection to its database. The call may or may not have been written.",
    errors.ConfigurationError: "The server's database refuses the server. Look for the cause in the server's log.",
}


def problem_of(error: LakelogError) -> dict[str, Any]:
    """Return the problem document of `error`, with the fixed fields and those of the error's subject.

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
    """Return the error of a problem document; the base class for an unknown code."""
    kind = _CLASSES.get(str(problem.get("code")), LakelogError)
    subject = {
        name: value
        for name, value in problem.items()
        if name not in _FIXED and isinstance(value, str | int | float | bool | None)
    }
    return kind(str(problem.get("detail") or ""), **subject)
