"""How `groups` and `dead` read what people type, and show what they are given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lakelog.cli import dead, group_views
from lakelog.cli.app import app
from lakelog.cli.groups import retry_policy, target
from lakelog.client.group_values import (
    DeadLetter,
    GroupDescription,
    GroupInfo,
    LeaseInfo,
    MemberInfo,
    PartitionProgress,
    Redriven,
)
from lakelog.model.group import Exponential, Fixed, GroupKind, GroupSettings, RetryPolicy
from lakelog.wire import group_shapes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("earliest", {"to": "earliest"}),
        ("latest", {"to": "latest"}),
        ("0", {"offset": 0}),
        ("812", {"offset": 812}),
        ("12-3-4567", {"message_id": "12-3-4567"}),
        ("id:2026-11-30", {"message_id": "2026-11-30"}),
        ("2026-11-31", {"message_id": "2026-11-31"}),
        ("2026-01-31", {"to": datetime(2026, 1, 31, tzinfo=UTC)}),
        ("2026-11-30T00:00Z", {"to": datetime(2026, 11, 30, tzinfo=UTC)}),
    ],
)
def test_places_of_a_seek_are_read(text: str, found: dict[str, Any]) -> None:
    assert target(text) == found


@pytest.mark.parametrize(("text", "advice"), [("2026-11-30", "id:2026-11-30"), ("soon", "earliest"), ("-1", "offset")])
def test_other_places_are_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(typer.BadParameter, match=advice):
        target(text)


@pytest.mark.parametrize(
    ("present", "given", "wanted"),
    [
        (Exponential(max=3), (5, None, None), Exponential(max=5)),
        (Exponential(jitter=0.5), (None, 2.0, 9.0), Exponential(base_seconds=2, max_seconds=9, jitter=0.5)),
        (Fixed(max=3, seconds=4), (0, None, None), Fixed(max=0, seconds=4)),
        (Fixed(max=3, seconds=4), (None, 5.0, None), Fixed(max=3, seconds=5)),
        (Fixed(max=3, seconds=4), (None, None, 60.0), Exponential(max=3, base_seconds=4, max_seconds=60)),
    ],
)
def test_a_part_of_a_retry_policy_is_changed(present: RetryPolicy, given: Any, wanted: RetryPolicy) -> None:
    assert retry_policy(present, *given) == wanted


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (Exponential(), "3, after 1s and then twice as long, up to 1m"),
        (Fixed(max=2, seconds=0.5), "2, each after 500ms"),
        (Exponential(max=0), "none"),
    ],
)
def test_retries_are_shown(policy: RetryPolicy, text: str) -> None:
    assert group_views.show_retries(policy) == text


TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)


def description(**settings: Any) -> GroupDescription:
    lease = LeaseInfo(token=4711, owner="w-1", offsets=((3, 3), (5, 9)), granted_at=TIME, expires_at=TIME, suspect=True)
    progress = PartitionProgress(
        topic="orders",
        partition=1,
        committed=3,
        high_watermark=20,
        lag=17,
        leased=6,
        leases=(lease,),
        stuck="No consumer is at work on it.",
    )
    member = MemberInfo(
        member_id="m-1",
        client_host="host-1",
        topics=("orders",),
        assigned={"orders": [0, 1]},
        session_ms=30_000,
        seen_at=TIME,
    )
    group = GroupInfo(
        name="billing",
        kind=GroupKind.LEASE,
        settings=GroupSettings(**settings),
        version=3,
        paused=frozenset({"refunds"}),
        created_at=TIME,
    )
    return GroupDescription(
        group=group, state="stable", generation=7, members=(member,), idle=(), progress=(progress,), dead_letters=2
    )


def test_a_description_has_everything_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    group_views.print_description(description())
    shown = capsys.readouterr().out
    for part in ("17 messages", "m-1", "orders 0, 1", "4711", "3, 5 to 9", "suspect", "refunds", "2 dead letters"):
        assert part in shown
    assert "lakelog dead list billing" in shown
    assert shown.endswith("Stands still:\n  orders/1: No consumer is at work on it.\n")


def test_json_has_the_names_of_the_http_api() -> None:
    shape = group_views.described(description())
    names = set(group_shapes.GroupDescribed.__struct_fields__)
    assert set(shape) - names == {"lag", "leases"}
    assert names - set(shape) == {"last_rebalance_at", "rebalancing_ms"}
    (progress,), (lease,) = shape["progress"], shape["leases"]  # type: ignore[misc]
    assert set(progress) <= set(group_shapes.ProgressShape.__struct_fields__)
    assert set(lease) == set(group_shapes.HeldShape.__struct_fields__)
    assert set(shape["settings"]) == set(group_shapes.GroupSettingsShape.__struct_fields__)  # type: ignore[call-overload]


def letter(**fields: Any) -> DeadLetter:
    stated = {
        "id": "1-0-3",
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "error": "timeout",
        "deliveries": 4,
        "failures": 4,
        "at": TIME,
        "owner": "w-1",
        "state": "dead",
    }
    return DeadLetter(**{**stated, **fields})


def test_a_dead_letter_has_the_names_of_the_http_api() -> None:
    found = dead.shape(letter(key=b"\xff", raw=b"\xfe", headers={"a": "b"}, lineage="1-0-1#1", redriven_to="1-0-9"))
    assert set(found) <= set(group_shapes.DeadLetterShape.__struct_fields__)
    assert (found["key_base64"], found["value_base64"]) == ("/w==", "/g==")
    assert dead.shape(letter(key=b"k", raw=b"text", content_type="text/plain"))["value"] == "text"


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "alter", "billing"],
        ["groups", "alter", "billing", "--order", "random"],
        ["groups", "alter", "billing", "--window", "0"],
        ["groups", "seek", "billing", "orders"],
        ["dead", "list", "billing", "--state", "gone"],
        ["dead", "redrive", "billing", "--rate", "0/s"],
        ["dead", "discard", "billing", "1-0-3", "--where", "failures > 1"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_before_anything_is_called(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 2 and "Usage: " in result.output


class FakeLog:
    """A client whose redrive does what it is told."""

    def __init__(self, done: Redriven) -> None:
        self._done = done

    def __enter__(self) -> FakeLog:
        return self

    def __exit__(self, *_: object) -> None: ...

    def group(self, name: str) -> FakeLog:
        return self

    def dead_letters(self, topic: str | None = None) -> FakeLog:
        return self

    def redrive(self, **options: Any) -> Redriven:
        return self._done


REFUSED = Redriven(refused=2, refusals=(("1-0-3", "redriven too often"),), has_more=True)


@pytest.mark.parametrize(
    ("done", "code", "said"),
    [
        (Redriven(redriven=3), 0, ""),
        (Redriven(redriven=3, has_more=True), 0, ""),
        (REFUSED, 1, "--force"),
        (Redriven(redriven=1, refused=1), 1, "refused"),
        (Redriven(redriven=1, refused=1, dry_run=True), 0, "refused"),
    ],
)
def test_a_redrive_that_was_refused_in_part_says_so(
    monkeypatch: pytest.MonkeyPatch, done: Redriven, code: int, said: str
) -> None:
    monkeypatch.setattr(dead, "open_log", lambda *_, **__: FakeLog(done))
    options = ["--dry-run"] if done.dry_run else []
    result = CliRunner().invoke(app, ["dead", "redrive", "billing", *options])
    assert result.exit_code == code and said in result.stderr
    assert f'"redriven":{done.redriven}' in result.stdout
