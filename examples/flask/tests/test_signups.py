"""The application and its handlers against an installation in memory."""

import pytest
from flask.testing import FlaskClient
from signups.letters import log, remind, welcome
from signups.web import create_app

from lakelog.testing import MemoryInstallation


@pytest.fixture
def web(lakelog_memory: MemoryInstallation) -> FlaskClient:
    lakelog_memory.attach(log)
    return create_app().test_client()


def test_a_letter_now_and_another_after_a_day(
    web: FlaskClient, lakelog_memory: MemoryInstallation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert web.post("/signups", data={"email": "ann@example.org"}).status_code == 202
    assert lakelog_memory.drain(welcome, remind).acked == 1
    lakelog_memory.clock.advance(days=1, minutes=1)
    assert lakelog_memory.drain(welcome, remind).acked == 1
    assert capsys.readouterr().out.splitlines() == [
        "to ann@example.org: welcome",
        "to ann@example.org: do you like it?",
    ]


def test_the_backlog_is_that_of_the_groups(web: FlaskClient, lakelog_memory: MemoryInstallation) -> None:
    lakelog_memory.drain(welcome)
    for _ in range(2):
        web.post("/signups", data={"email": "ann@example.org"})
    web.post("/signups", data={"email": "bob@example.org"})
    assert web.get("/backlog").json == {"welcome": 2}
    assert web.post("/signups").status_code == 400
