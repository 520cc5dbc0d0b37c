"""The advice of a command that failed, by the service that is unreachable."""

from __future__ import annotations

import pytest

from lakelog.cli import failures, target
from lakelog.errors import LakelogError, NotAuthenticated, OutcomeUnknown, TopicNotFound, Unavailable

SERVER, DATABASE = "http://127.0.0.1:1", "postgresql://user:secret@127.0.0.1:2/x"


@pytest.mark.parametrize(
    ("url", "error", "advice"),
    [
        (SERVER, Unavailable("d", unreachable="server"), "Start a server with `lakelog dev` or `lakelog serve`"),
        (SERVER, Unavailable("d", unreachable="database"), "The server is running, but it cannot reach its database."),
        (SERVER, OutcomeUnknown("d"), "The server is running. Retry later"),
        (
            DATABASE,
            Unavailable("d", unreachable="database"),
            "Start PostgreSQL, or check the URL postgresql://127.0.0.1:2/x.",
        ),
        (SERVER, NotAuthenticated("d"), "Create a token with `lakelog tokens create` and pass it with --token."),
        (SERVER, TopicNotFound("d"), None),
    ],
)
def test_the_advice_fits_what_cannot_be_reached(
    url: str, error: LakelogError, advice: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_last", [target.find_target(url, None)])
    given = failures._advice(error)
    assert given is None if advice is None else given and given.startswith(advice)
