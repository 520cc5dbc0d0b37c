"""What callers learn about errors of the server's database."""

from __future__ import annotations

import pytest

from lakelog.errors import ConfigurationError, LakelogError, OutcomeUnknown, Unavailable
from lakelog.wire.problems import error_of, problem_of


@pytest.mark.parametrize("kind", [Unavailable, OutcomeUnknown, ConfigurationError])
def test_callers_learn_that_the_database_failed_and_not_where_it_is(kind: type[LakelogError]) -> None:
    place = "db.internal:5432/lakelog"
    problem = problem_of(kind(f"PostgreSQL at {place}: role svc.", unreachable="database", database=place))
    assert problem["unreachable"] == "database" and "database" in problem["detail"]
    assert "db.internal" not in str(problem) and "svc" not in str(problem)
    back = error_of(problem)
    assert type(back) is kind and back.unreachable == "database"


def test_other_errors_keep_their_detail() -> None:
    problem = problem_of(Unavailable("Topic 'x' changed meanwhile.", topic="x"))
    assert problem["detail"] == "Topic 'x' changed meanwhile." and problem["topic"] == "x"
