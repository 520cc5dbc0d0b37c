"""Converts errors to responses: problem+json with the request id, and Retry-After if a retry can help."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lakelog.errors import Closed, LakelogError, NotAuthenticated, OutcomeUnknown, Overloaded, Unavailable
from lakelog.server.calls import Header, HttpError, Response
from lakelog.wire.problems import MEDIA_TYPE, problem_of

_TYPE: Header = (b"content-type", MEDIA_TYPE.encode())
_CHALLENGE: Header = (b"www-authenticate", b"Bearer")
_UNEXPECTED = "The server had an internal error. Its log has the details under the request id."
_WHOLE = (Unavailable, OutcomeUnknown, Overloaded, Closed)

_HIDDEN = "The server cannot handle the call now. Its log has the reason."
_SHOWN = {"retry_after", "unreachable"}


def error_response(error: Exception, request_id: bytes, *, is_known: bool = True) -> Response:
    """Return the response to a call that raised `error`. The text of an unexpected error reveals nothing internal.

    A caller that is not authenticated (`is_known`) gets only the kind of a failure of the server: texts and subjects
    may name addresses and buckets.
    """
    headers: tuple[Header, ...] = ()
    if isinstance(error, HttpError):
        problem = {**problem_of(error.error), "status": error.status}
        headers = error.headers
    elif isinstance(error, LakelogError):
        problem = problem_of(error)
        if not is_known and problem["status"] >= 500:
            problem = {**problem_of(type(error)(_HIDDEN)), **{name: problem[name] for name in _SHOWN & problem.keys()}}
    else:
        problem = problem_of(LakelogError(_UNEXPECTED))
    status: int = problem["status"]
    if status in (429, 503):
        retry_after = problem.setdefault("retry_after", 1)
        headers += ((b"retry-after", b"%d" % max(1, round(retry_after))),)
    if isinstance(error, NotAuthenticated):
        headers += (_CHALLENGE,)
    problem["request_id"] = request_id.decode("ascii")
    return Response(status, msgspec.json.encode(problem), _TYPE, *headers)


def raise_if_alike(results: Sequence[object]) -> None:
    """Raise an error of the server or the database if all results of a call are that error.

    The whole call then fails with it, as 503 with Retry-After.
    """
    if isinstance(first := results[0], _WHOLE) and all(type(each) is type(first) for each in results):
        raise first
