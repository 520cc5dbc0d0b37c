"""A query as the one member of its group, over an engine in memory: begun, replaced, moved, forgotten and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import lakelog
from lakelog.errors import GroupNotFound, PositionRefused, StaleGeneration
from lakelog.model.group import GroupKind
from lakelog.model.membership import JoinRequest
from lakelog.model.seek import GroupPosition
from lakelog.spark.streaming.member import StreamMember
from lakelog.spark.streaming.options import StreamOptions
from tests.kit.waiting import eventually

_names = itertools.count()
WISH = StreamOptions(topic="orders", group="features", session_ms=3000)
AT = {0: 0, 1: 0}
CURSOR: dict[str, Any] = {"kind": GroupKind.CURSOR}


@pytest.fixture
def log() -> Iterator[Any]:
    with lakelog.connect(f"memory://stream-member-{next(_names)}") as opened:
        opened.topic("orders").create(2)
        opened.topic("orders").publish_many([lakelog.Outgoing({"n": n}, partition=n % 2) for n in range(20)])
        yield opened


def positions(log: Any) -> list[int]:
    return [position.offset for _, position in sorted(log.group("features").positions("orders").items())]


def test_it_begins_where_the_group_is_and_commits_what_is_new(log: Any) -> None:
    member = StreamMember(log, WISH)
    assert member.begin(AT) == {
        0: GroupPosition(0, 0, 0),
        1: GroupPosition(1, 0, 0),
    }
    member.commit({0: 4, 1: 0})
    assert positions(log) == [4, 0]
    member.commit({0: 4, 1: 7})
    assert positions(log) == [4, 7]
    member.leave()
    assert log.group("features").describe().members == ()
    assert StreamMember(log, WISH).begin(AT) == {
        0: GroupPosition(0, 4, 0),
        1: GroupPosition(1, 7, 0),
    }


def test_a_new_group_begins_at_the_offsets_given_and_one_that_exists_where_it_is(log: Any) -> None:
    member = StreamMember(log, WISH)
    assert member.begin({0: 3, 1: 5}) == {
        0: GroupPosition(0, 3, 0),
        1: GroupPosition(1, 5, 0),
    }
    member.leave()
    assert StreamMember(log, WISH).begin({0: 8, 1: 8}) == {
        0: GroupPosition(0, 3, 0),
        1: GroupPosition(1, 5, 0),
    }


def test_a_query_that_withdraws_deletes_the_group_that_it_created(log: Any) -> None:
    member = StreamMember(log, WISH)
    member.begin({0: 3, 1: 5})
    member.withdraw()
    with pytest.raises(GroupNotFound):
        log.group("features").describe()


def test_a_query_that_withdraws_keeps_a_group_that_existed_or_was_moved_or_has_a_member(log: Any) -> None:
    log.group("features").join(JoinRequest(group="features", topics=("orders",), member_id="first", **CURSOR))
    log.group("features").leave("first")
    member = StreamMember(log, WISH)
    member.begin(AT)
    member.withdraw()
    assert positions(log) == [10, 10]

    log.group("features").delete()
    member = StreamMember(log, WISH)
    member.begin(AT)
    log.topic("orders").seek("features", to="latest")
    member.withdraw()
    assert positions(log) == [10, 10]

    log.group("features").delete()
    first, second = StreamMember(log, WISH), StreamMember(log, WISH)
    first.begin(AT)
    second.begin(AT)
    first.withdraw()
    assert positions(log) == [0, 0]
    second.leave()


def test_s17_the_second_replaces_the_first_which_names_it(log: Any) -> None:
    first, second = StreamMember(log, WISH), StreamMember(log, WISH)
    first.begin(AT)
    second.begin(AT)
    [there] = log.group("features").describe().members
    with pytest.raises(StaleGeneration, match=f"replaced by {there.member_id} on .* \\(spark\\)"):
        first.commit({0: 4})
    with pytest.raises(StaleGeneration):
        first.confirm()
    assert positions(log) == [0, 0]
    second.commit({0: 5})
    second.leave()


def test_s17_the_journal_refuses_the_first_also_where_its_server_did_not_hear_of_the_second(log: Any) -> None:
    first, second = StreamMember(log, WISH), StreamMember(log, WISH)
    first.begin(AT)
    generation = log.group("features").describe().generation
    second.begin(AT)
    with pytest.raises(StaleGeneration):
        log.group("features").commit("orders", {0: 4}, generation=generation)
    second.leave()


def test_an_idle_one_hears_of_its_replacement_by_its_heartbeat(log: Any) -> None:
    first = StreamMember(log, WISH)
    first.begin(AT)
    second = StreamMember(log, WISH)
    second.begin(AT)
    eventually(lambda: first._failure)
    with pytest.raises(StaleGeneration, match="replaced by"):
        first.confirm()
    second.leave()


def test_a_seek_is_noticed_and_nothing_is_committed_after_it(log: Any) -> None:
    member = StreamMember(log, WISH)
    member.begin(AT)
    member.commit({0: 4, 1: 4})
    log.topic("orders").seek("features", to="earliest")
    with pytest.raises(PositionRefused, match="partition 0: 4, the group 0"):
        member.commit({0: 6, 1: 6})
    assert positions(log) == [0, 0]
    member.leave()


def test_one_that_was_forgotten_comes_back_if_nobody_else_came(log: Any) -> None:
    member = StreamMember(log, WISH)
    member.begin(AT)
    log.group("features").leave(member._member_id)
    member.commit({0: 4, 1: 0})
    assert positions(log) == [4, 0]
    assert len(log.group("features").describe().members) == 1
    member.leave()


def test_one_that_is_to_share_stops_rather_than_gives_up_a_part(log: Any) -> None:
    member = StreamMember(log, WISH)
    member.begin(AT)
    log.group("features").join(JoinRequest(group="features", topics=("orders",), member_id="guest", **CURSOR))
    failure = eventually(lambda: member._failure)
    assert "guest" in str(failure)
    [guest] = [each for each in log.group("features").describe().members if each.member_id == "guest"]
    assert not guest.assigned
    member.leave()


def test_its_heartbeat_ends_with_the_client(log: Any) -> None:
    member = StreamMember(log, WISH)
    member.begin(AT)
    log.close()
    thread = member._thread
    assert thread is not None
    eventually(lambda: not thread.is_alive(), within=15)
