"""The routes of groups: members, progress, settings, seeks, pauses, positions; with and without the prefix."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from lakelog.engine.operations import bind
from lakelog.server.calls import Call, Response
from lakelog.server.dispatch import Dispatch
from lakelog.server.drain import Drain
from lakelog.server.group_routing import GroupRouting
from lakelog.storage.groups import ServerInfo
from lakelog.wire.operations import groups
from tests.unit.server.harness import Reply, World, working

WHO = {"topic": "jobs", "group": "billing", "owner": "w1"}


async def _post(made: World, path: str, body: object = None, **more: Any) -> Reply:
    return await made.call("POST", f"/v1/groups/{path}", json=body, **more)


async def _consume(made: World, **more: Any) -> Reply:
    reply = await made.call("POST", "/v1/consume", json={**WHO, "start_from": "earliest", **more})
    assert reply.status == 200, reply.body
    return reply


async def _fill(made: World, count: int = 4) -> None:
    await made.publish("jobs", *({"value": number} for number in range(count)))


@pytest.mark.parametrize("prefix", ["/v1", ""])
async def test_the_life_of_a_member(prefix: str) -> None:
    async with working() as made:
        path = f"{prefix}/groups/order-service"
        body = {"member_id": "consumer-1", "topics": ["orders"], "session_timeout_ms": 30_000}
        headers = {"x-forwarded-for": "6.6.6.6", "x-lakelog-forwarded": "1", "x-lakelog-client": "6.6.6.6"}
        joined = await made.call("POST", f"{path}/join", json=body, headers=headers, client=("10.0.0.5", 50_000))
        assert joined.json == {
            "member_id": "consumer-1",
            "generation": 1,
            "assigned_partitions": {"orders": [0, 1, 2, 3]},
            "heartbeat_interval_ms": 10_000,
            "skipped_at_start": {"orders": 0},
            "settings": joined.json["settings"],
        }
        assert joined.json["settings"]["order"] == "key"
        await made.call("POST", f"{path}/join", json={"member_id": "consumer-2", "topics": ["orders"]})
        beat = await made.call("POST", f"{path}/heartbeat", json={"member_id": "consumer-1", "generation": 1})
        assert (beat.status, beat.json["generation"]) == (200, 2)
        assert len(beat.json["assigned_partitions"]["orders"]) == 2
        described = (await made.call("GET", path)).json
        assert (described["group_id"], described["state"], described["generation"]) == ("order-service", "stable", 2)
        first, second = described["members"]
        assert (first["member_id"], first["client_host"]) == ("consumer-1", "10.0.0.5")
        assigned = [*first["assigned_partitions"]["orders"], *second["assigned_partitions"]["orders"]]
        assert sorted(assigned) == [0, 1, 2, 3]
        assert (await made.call("POST", f"{path}/leave", json={"member_id": "consumer-2"})).status == 204
        gone = await made.call("POST", f"{path}/heartbeat", json={"member_id": "consumer-2", "generation": 2})
        assert (gone.status, gone.json["code"]) == (409, "unknown_member")
        listed = (await made.call("GET", f"{prefix}/groups")).json
        assert [group["group_id"] for group in listed["groups"]] == ["order-service"]


async def test_a_group_is_described_with_its_settings() -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made, retries={"max": 5, "strategy": "fixed", "base_ms": 250}, filter="value >= 0", window=10)
        described = (await made.call("GET", "/v1/groups/billing")).json
    assert described["settings"] == {
        "order": "key",
        "filter": "value >= 0",
        "retries": {"max": 5, "strategy": "fixed", "base_ms": 250, "max_ms": 60_000, "jitter": 0.2},
        "dead_letter": True,
        "assignor": "cooperative-sticky",
        "window": 10,
        "dead_letter_retention": {},
        "topics": {},
    }
    assert (described["kind"], described["paused"], described["dead_letters"]) == ("lease", [], 0)
    (progress,) = described["progress"]
    assert (progress["topic"], progress["lag"], progress["leased"], progress["high_watermark"]) == ("jobs", 4, 1, 4)


async def test_groups_are_listed_with_how_far_they_are_page_by_page() -> None:
    async with working() as made:
        await _fill(made)
        for group in ("billing", "email"):
            await _consume(made, group=group)
        await _post(made, "email/pause")
        listed = (await made.call("GET", "/v1/groups", query="limit=1")).json
        (first,) = listed["groups"]
        assert (first["group_id"], first["status"], first["lag"]) == ("billing", "working", 4)
        assert (first["member_count"], first["dead_letters"], first["paused"]) == (0, 0, [])
        assert first["oldest_at"] is not None and listed["next"] == "billing"
        rest = (await made.call("GET", "/v1/groups", query="after=billing")).json
        assert [(each["group_id"], each["status"]) for each in rest["groups"]] == [("email", "paused")]
        assert rest["next"] is None


async def test_lag_and_leases() -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made, max_messages=3)
        lag = (await made.call("GET", "/v1/groups/billing/lag", query="topic=jobs")).json
        held = (await made.call("GET", "/v1/groups/billing/leases")).json
    assert (lag["lag"], lag["partitions"][0]["leased"]) == (4, 3)
    (lease,) = held["leases"]
    assert (lease["owner"], lease["offsets"], lease["topic"], lease["suspect"]) == ("w1", [[0, 2]], "jobs", False)


async def test_settings_are_altered() -> None:
    async with working() as made:
        await _consume(made, filter="value > 5")
        altered = await made.call("PATCH", "/v1/groups/billing", json={"window": 7, "filter": "", "dead_letter": False})
        assert altered.status == 200, altered.body
        settings = (await made.call("GET", "/v1/groups/billing")).json["settings"]
    assert (settings["window"], settings["filter"], settings["dead_letter"]) == (7, None, False)


async def test_the_retention_of_dead_letters_is_altered_limit_by_limit_and_audited(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def alter(made: World, retention: dict[str, Any]) -> Any:
        reply = await made.call("PATCH", "/v1/groups/billing", json={"dead_letter_retention": retention})
        return reply.json["settings"]["dead_letter_retention"] if reply.status == 200 else reply.status

    with caplog.at_level(logging.INFO, logger="lakelog.audit"):
        async with working() as made:
            await _consume(made)
            assert (await made.call("GET", "/v1/groups/billing")).json["settings"]["dead_letter_retention"] == {}
            assert await alter(made, {"max_age_ms": 86_400_000}) == {"max_age_ms": 86_400_000}
            assert await alter(made, {"max_count": 100}) == {"max_age_ms": 86_400_000, "max_count": 100}
            described = (await made.call("GET", "/v1/groups/billing")).json["settings"]["dead_letter_retention"]
            assert described == {"max_age_ms": 86_400_000, "max_count": 100}
            assert await alter(made, {"max_age_ms": None}) == {"max_count": 100}
            wrong = ({"max_count": 0}, {"max_count": 1_000_001}, {"max_age_ms": 0}, {"max_bytes": 1})
            assert [await alter(made, each) for each in wrong] == [422] * 4
            in_topic = {"topic": "jobs", "dead_letter_retention": {"max_count": 5}}
            assert (await made.call("PATCH", "/v1/groups/billing", json=in_topic)).status == 422, "it is the group's"
            stated = {**WHO, "dead_letter_retention": {"max_count": 5}}
            assert (await made.call("POST", "/v1/consume", json=stated)).status == 422, "consumers do not state it"
    assert 'altered group billing (dead_letter_retention={"max_count":100})' in caplog.text


async def test_pause_and_resume() -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made, max_messages=1)
        assert (await _post(made, "billing/pause")).json["paused"] == ["*"]
        assert (await _consume(made)).json == {"leases": []}
        assert (await _post(made, "billing/resume", {})).json["paused"] == []
        assert (await _post(made, "billing/pause", {"topic": "jobs"})).json["paused"] == ["jobs"]
        assert (await _post(made, "billing/resume", {"topic": "jobs"})).json["paused"] == []
        topic = await made.call("POST", "/v1/topics/jobs/pause")
        assert [group["paused"] for group in topic.json["groups"]] == [["jobs"]]
        await made.call("POST", "/v1/topics/jobs/resume")
        assert len((await _consume(made)).json["leases"]) == 1


async def test_seek_by_every_way() -> None:
    async with working() as made:
        await _fill(made, 10)
        await _consume(made, max_messages=10)
        topic = (await made.call("GET", "/v1/topics/jobs")).json
        for target, expected in (
            ({"offset": 4}, 4),
            ({"position": "latest"}, 10),
            ({"position": "earliest"}, 0),
            ({"timestamp": "2999-01-01T00:00:00Z"}, 10),
            ({"message_id": f"{topic['incarnation']}-0-3"}, 3),
        ):
            dry = await _post(made, "billing/seek", {"topic": "jobs", "dry_run": True, **target})
            moved = await _post(made, "billing/seek", {"topic": "jobs", **target})
            assert (dry.status, moved.status) == (200, 200), moved.body
            assert dry.json["partitions"] == moved.json["partitions"]
            assert moved.json["partitions"][0]["to"] == expected
        lease = (await _consume(made)).json["leases"][0]
    assert lease["messages"][0]["offset"] == 3


@pytest.mark.parametrize(
    "target", [{}, {"offset": 1, "position": "latest"}, {"position": "middle"}, {"message_id": "x"}]
)
async def test_a_seek_needs_one_target(target: dict[str, Any]) -> None:
    async with working() as made:
        await _consume(made)
        assert (await _post(made, "billing/seek", {"topic": "jobs", **target})).status == 422


async def test_a_skip_moves_a_group_past_messages_and_counts_them() -> None:
    async with working() as made:
        await _fill(made, 10)
        lease = (await _consume(made)).json["leases"][0]
        body = {"topic": "jobs", "partition": 0, "offset": 7}
        dry = await _post(made, "billing/skip", {**body, "dry_run": True})
        skipped = await _post(made, "billing/skip", body)
        assert skipped.json == {
            "partition": 0,
            "offset": 7,
            "dry_run": False,
            "messages": 6,
            "leased": 1,
            "unreadable": None,
        }
        assert dry.json == {**skipped.json, "dry_run": True}
        assert (await _post(made, "billing/skip", body)).json["messages"] == 0
        progress = (await made.call("GET", "/v1/groups/billing/lag")).json["partitions"][0]
        assert (progress["cut"], progress["leased"], progress["frontier"]) == (6, 1, 7)
        acked = {**WHO, "token": lease["token"], "offset": 0}
        assert (await made.call("POST", "/v1/ack", json=acked)).status == 204
        offsets = [each["offset"] for each in (await _consume(made, max_messages=9)).json["leases"][0]["messages"]]
        assert offsets == [7, 8, 9]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"offset": 11}, 416, "offset_out_of_range"),
        ({"partition": 9}, 404, "partition_not_found"),
        ({"topic": "none"}, 404, "topic_not_found"),
        ({"offset": -1}, 422, "invalid_request"),
        ({"position": "latest"}, 422, "invalid_request"),
    ],
)
async def test_a_skip_that_is_likely_a_mistake_is_refused(body: dict[str, Any], status: int, code: str) -> None:
    async with working() as made:
        await _fill(made, 10)
        await _consume(made)
        reply = await _post(made, "billing/skip", {"topic": "jobs", "partition": 0, "offset": 7, **body})
        assert (reply.status, reply.json["code"]) == (status, code)


async def test_a_skip_is_made_and_audited_by_the_home_of_the_group(caplog: pytest.LogCaptureFixture) -> None:
    """The home hands out what follows: its cached progress has to know of the skip."""
    caplog.set_level(logging.INFO, "lakelog.audit")
    async with working() as home, working() as other:
        passed: list[bytes] = []

        class Away(GroupRouting):
            def __init__(self) -> None: ...

            def elsewhere(
                self, call: Call, group: str, topic: str = "", *, owner: str = "", partitions: int = 1
            ) -> ServerInfo | None:
                return ServerInfo(server_id="home", address=f"{group} {topic}")

            async def forward(self, call: Call, body: bytes, home_: ServerInfo, *, seconds: float = 0.0) -> Response:
                assert home_.address == "billing jobs"
                passed.append(body)
                reply = await _post(home, "billing/skip", msgspec.json.decode(body))
                call.passed_on = True
                return Response(reply.status, reply.body)

        await _fill(home, 10)
        await _consume(home)
        other.app._handlers["skip"] = Dispatch(groups.SKIP, bind(other.engine), Drain(), Away())
        reply = await _post(other, "billing/skip", {"topic": "jobs", "partition": 0, "offset": 7})
        assert (reply.status, reply.json["messages"], len(passed)) == (200, 6, 1)
    created, skipped = caplog.messages
    assert "created group billing" in created
    assert "skipped" in skipped and "(partition=0, offset=7, messages=6)" in skipped


async def test_positions_of_a_cursor_group() -> None:
    async with working() as made:
        await _fill(made, 10)
        body = {"member_id": "m1", "topics": ["jobs"], "kind": "cursor", "start_from": "earliest"}
        joined = (await _post(made, "spark/join", body)).json
        commit: dict[str, Any] = {"topic": "jobs", "positions": [{"partition": 0, "offset": 6}]}
        who = {"member_id": "m1", "generation": joined["generation"]}
        assert (await _post(made, "spark/positions", {**commit, **who})).status == 204
        found = await made.call("GET", "/v1/groups/spark/positions", query="topic=jobs")
        assert found.json["positions"] == [{"partition": 0, "offset": 6, "epoch": 0}]
        other = await _post(made, "spark/positions", {**commit, "member_id": "m2", "generation": 1})
        assert (other.status, other.json["code"]) == (409, "unknown_member")
        twice = {**commit, "positions": commit["positions"] * 2}
        assert (await _post(made, "spark/positions", twice)).status == 422
        leased = await made.call("POST", "/v1/consume", json={**WHO, "group": "spark"})
        assert (leased.status, leased.json["code"]) == (409, "group_kind_differs")


async def test_s17_who_joins_and_replaces_is_the_only_member_and_the_other_is_refused() -> None:
    async with working() as made:
        await _fill(made, 10)
        body = {"topics": ["jobs"], "kind": "cursor", "start_from": "earliest"}
        first = (await _post(made, "spark/join", {**body, "member_id": "m1"})).json
        second = (await _post(made, "spark/join", {**body, "member_id": "m2", "replace": True, "client": "spark"})).json
        assert second["generation"] > first["generation"]
        assert second["assigned_partitions"] == first["assigned_partitions"]
        assert "revoked_partitions" not in second
        commit = {"topic": "jobs", "positions": [{"partition": 0, "offset": 6}]}
        refused = await _post(made, "spark/positions", {**commit, "member_id": "m1", "generation": first["generation"]})
        assert (refused.status, refused.json["code"]) == (409, "unknown_member")
        described = (await made.call("GET", "/v1/groups/spark")).json
        assert [(each["member_id"], each["client_host"]) for each in described["members"]] == [("m2", "(spark)")]
        wrong = await _post(made, "spark/join", {**body, "client": "spark\n"})
        assert wrong.status == 422


async def test_a_group_without_members_is_deleted() -> None:
    async with working() as made:
        await _consume(made)
        assert (await made.call("DELETE", "/v1/groups/billing")).status == 204
        assert (await made.call("GET", "/v1/groups/billing")).json["code"] == "group_not_found"


async def test_stats_of_a_topic() -> None:
    async with working() as made:
        await _fill(made)
        await _consume(made, max_messages=2)
        await made.call("POST", "/v1/nack", json={**WHO, "partition": 0, "offset": 0, "kind": "fatal"})
        stats = (await made.call("GET", "/v1/topics/jobs/stats")).json
    (group,) = stats.pop("groups")
    assert group == {
        "group_id": "billing",
        "kind": "lease",
        "lag": 3,
        "pending": 1,
        "dead_letters": 1,
        "committed": {"0": 1},
    }
    assert (stats["messages"], stats["partitions"], stats["dead_letters"]) == (4, 1, 1)
    assert stats["oldest_at"] <= stats["newest_at"]


async def _kill(made: World, count: int = 3) -> list[Any]:
    await _fill(made, count)
    await _consume(made, max_messages=count)
    for offset in range(count):
        body = {**WHO, "partition": 0, "offset": offset, "kind": "fatal", "reason": f"error {offset}"}
        assert (await made.call("POST", "/v1/nack", json=body)).status == 204
    letters: list[Any] = (await made.call("GET", "/v1/groups/billing/dead-letters")).json["dead_letters"]
    return letters


async def test_dead_letters_are_listed_and_found() -> None:
    async with working() as made:
        letters = await _kill(made)
        assert [letter["value"] for letter in letters] == [0, 1, 2]
        assert {letter["state"] for letter in letters} == {"dead"}
        some = await made.call("GET", "/v1/groups/billing/dead-letters", query="where=error%20%3D%20'error%201'")
        assert [letter["error"] for letter in some.json["dead_letters"]] == ["error 1"]
        page = (await made.call("GET", "/v1/groups/billing/dead-letters", query="limit=2")).json
        rest = (await made.call("GET", "/v1/groups/billing/dead-letters", query=f"after={page['next']}")).json
        assert [len(page["dead_letters"]), len(rest["dead_letters"]), rest["next"]] == [2, 1, None]
        one = await made.call("GET", f"/v1/groups/billing/dead-letters/{letters[1]['id']}")
        assert one.json == letters[1]
        missing = await made.call("GET", "/v1/groups/billing/dead-letters/1-0-99")
        assert (missing.status, missing.json["code"]) == (404, "dead_letter_not_found")
        for query in (
            "state=alive",
            "limit=0",
            "limit=1001",
            "where=error",
            "after=x",
            f"after={'1' * 121}",
            "page=1",
            "partition=null",
        ):
            assert (await made.call("GET", "/v1/groups/billing/dead-letters", query=query)).status == 422, query


async def test_dead_letters_are_redriven() -> None:
    async with working() as made:
        letters = await _kill(made)
        dry = await _post(made, "billing/dead-letters/redrive", {"topic": "jobs", "dry_run": True})
        assert (dry.json["redriven"], dry.json["dry_run"]) == (3, True)
        body = {"values": {letters[0]["id"]: {"value": {"mended": True}}}}
        mended = await _post(made, "billing/dead-letters/redrive", body)
        assert (mended.json["redriven"], mended.json["ids"]) == (1, [letters[0]["id"]])
        once = await _post(made, f"billing/dead-letters/{letters[1]['id']}/retry")
        assert once.json["redriven"] == 1
        again = await _post(made, f"billing/dead-letters/{letters[1]['id']}/retry", {})
        assert (again.status, again.json["code"]) == (409, "redrive_refused")
        leases = (await _consume(made, max_messages=5)).json["leases"]
        values = [message["value"] for lease in leases for message in lease["messages"]]
        assert values == [{"mended": True}, 1]
        redriven = await made.call("GET", "/v1/groups/billing/dead-letters", query="state=redriven")
        assert all(letter["redriven_to"] for letter in redriven.json["dead_letters"])
        assert len(redriven.json["dead_letters"]) == 2


@pytest.mark.parametrize(
    ("repaired", "shown"),
    [
        ({"value": {"a": 1}}, {"value": {"a": 1}, "content_type": "application/json"}),
        ({"value": "text"}, {"value": "text", "content_type": "text/plain"}),
        ({"value_base64": "Nw=="}, {"value": 7, "content_type": "application/json"}),
        ({"value_base64": "Nw==", "content_type": "text/plain"}, {"value": "7", "content_type": "text/plain"}),
        ({"headers": {"h": "1"}}, {"value": 0, "content_type": "application/json", "headers": {"h": "1"}}),
    ],
)
async def test_a_repaired_value_has_its_content_type(repaired: Any, shown: Any) -> None:
    async with working() as made:
        letters = await _kill(made, 1)
        await _post(made, f"billing/dead-letters/{letters[0]['id']}/retry", {"repaired": repaired})
        ((message,),) = [lease["messages"] for lease in (await _consume(made)).json["leases"]]
    assert {name: message.get(name) for name in shown} == shown


@pytest.mark.parametrize(
    ("repaired", "said"),
    [
        ({}, "needs a value or headers"),
        ({"value": None}, "needs a value or headers"),
        ({"value": 1, "value_base64": "Nw=="}, "not both"),
        ({"value_base64": "*"}, "base64"),
        ({"other": 1}, "unknown field"),
    ],
)
async def test_a_repair_without_content_is_refused(repaired: Any, said: str) -> None:
    async with working() as made:
        (letter,) = await _kill(made, 1)
        for path, body in (
            (f"{letter['id']}/retry", {"repaired": repaired}),
            ("redrive", {"values": {letter["id"]: repaired}}),
        ):
            reply = await _post(made, f"billing/dead-letters/{path}", body)
            assert (reply.status, said in reply.json["detail"]) == (422, True), reply.json


@pytest.mark.parametrize("verb", ["redrive", "discard"])
async def test_dead_letters_are_never_selected_without_a_body(verb: str) -> None:
    async with working() as made:
        await _kill(made, 1)
        path = f"billing/dead-letters/{verb}"
        assert (await _post(made, path)).status == 415
        ids = [f"1-0-{number}" for number in range(10_001)]
        for wrong in (
            {"limit": 0},
            {"limit": 10_001},
            {"message_ids": []},
            {"message_ids": ids},
            {"message_ids": ["1-0-" + "0" * 120]},
            {"message_ids": ids[:1], "topic": "jobs"},
            {"message_ids": ids[:1], "where": "failures > 1"},
            {"other": 1},
        ):
            assert (await _post(made, path, wrong)).status == 422, wrong
        assert (await _post(made, path, {"message_ids": ids[1:]})).status == 404
        assert len((await made.call("GET", "/v1/groups/billing/dead-letters")).json["dead_letters"]) == 1


@pytest.mark.parametrize("name", ["x", "1-0", "1-0-" + "9" * 5000], ids=lambda name: name[:20])
async def test_a_text_that_is_not_a_message_id_is_refused(name: str) -> None:
    async with working() as made:
        await _kill(made, 1)
        path = f"/v1/groups/billing/dead-letters/{name}"
        for method, suffix in (("GET", ""), ("DELETE", ""), ("POST", "/retry")):
            reply = await made.call(method, path + suffix)
            assert (reply.status, "is not a message id" in reply.json["detail"]) == (422, True), method


async def test_dead_letters_are_discarded() -> None:
    async with working() as made:
        letters = await _kill(made)
        assert (await made.call("DELETE", f"/v1/groups/billing/dead-letters/{letters[0]['id']}")).status == 204
        some = await _post(made, "billing/dead-letters/discard", {"topic": "jobs", "where": "error = 'error 2'"})
        assert some.json == {"discarded": 1}
        left = (await made.call("GET", "/v1/groups/billing/dead-letters")).json["dead_letters"]
        assert [letter["error"] for letter in left] == ["error 1"]


async def test_finished_dead_letters_are_purged_and_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakelog.audit")
    async with working() as made:
        await _kill(made)
        await _post(made, "billing/dead-letters/discard", {"topic": "jobs", "where": "error = 'error 2'"})
        purged = await _post(made, "billing/dead-letters/purge", {"older_than_ms": 0, "topic": "jobs"})
        assert purged.json == {"purged": 1}
        for wrong in ({}, {"older_than_ms": -1}, {"older_than_ms": 0, "limit": 10_001}, {"older_than_ms": "7d"}):
            assert (await _post(made, "billing/dead-letters/purge", wrong)).status == 422
    assert (
        "purged finished dead letters of group billing (older_than_ms=0, topic=jobs, messages=1)."
        in caplog.messages[-1]
    )


@pytest.mark.parametrize("name", ["redrive", "discard", "purge"])
async def test_a_verb_is_not_the_id_of_a_dead_letter(name: str) -> None:
    async with working() as made:
        await _kill(made, 1)
        reply = await made.call("GET", f"/v1/groups/billing/dead-letters/{name}")
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
