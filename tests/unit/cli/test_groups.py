"""How `groups` and `dead` read what people type, and show what they are given."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from msgspec import json, to_builtins
from msgspec.structs import replace
from typer.testing import CliRunner

from lakelog.cli import dead, group_views
from lakelog.cli.app import app
from lakelog.cli.groups import retry_policy, target
from lakelog.engine.groups.reasons import unreadable
from lakelog.engine.log.damage import Damage
from lakelog.model.dead_letter_retention import DeadLetterRetention
from lakelog.model.dead_letters import DeadLetter, Redriven, RefusedDeadLetter
from lakelog.model.group import Exponential, Fixed, Group, GroupKind, GroupSettings, GroupTopicSettings, RetryPolicy
from lakelog.model.history import GroupHistory, HistoryPoint
from lakelog.model.kinds import DeadLetterState
from lakelog.model.progress import GroupDescription, GroupSummary, LeaseInfo, MemberInfo, PartitionProgress
from lakelog.model.stuck import Remedy, Stuck, StuckCode
from lakelog.model.topic import Scope


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
WORKER = "host-12345-ab12cd34"


def later(seconds: float) -> datetime:
    return TIME + timedelta(seconds=seconds)


PAUSED = Stuck(
    code=StuckCode.PAUSED,
    text="The group is paused. Resume it with `lakelog groups resume billing`.",
    since=TIME - timedelta(seconds=200),
    remedies=(
        Remedy(label="Resume it", cli="lakelog groups resume billing"),
        Remedy(label="Ask", cli="lakelog doctor"),
    ),
    topic="orders",
    partitions=(1,),
)


def description(**settings: Any) -> GroupDescription:
    lease = LeaseInfo(
        topic="orders",
        partition=1,
        token=4711,
        owner=WORKER,
        offsets=((3, 3), (5, 9)),
        granted_at=TIME,
        expires_at=later(25),
        suspect=True,
    )
    figures = dict.fromkeys(("frontier", "log_start", "epoch", "waiting", "skipped"), 0)
    ends = dict.fromkeys(("acked", "discarded", "filtered", "expired", "cut"), 0)
    progress = PartitionProgress(
        **figures,
        **ends,
        topic="orders",
        partition=1,
        committed=3,
        high_watermark=20,
        lag=17,
        leased=6,
        dead=7,
        status="paused",
        oldest_at=later(-200),
        leases=(lease,),
        stuck=PAUSED,
    )
    member = MemberInfo(
        member_id=WORKER,
        client_host="10.0.12.34",
        topics=("orders",),
        assigned={"orders": [0, 1]},
        session_ms=30_000,
        seen_at=later(-3),
    )
    return GroupDescription(
        name="billing",
        kind=GroupKind.LEASE,
        settings=GroupSettings(**settings),
        version=3,
        paused=("refunds",),
        created_at=TIME,
        status="paused",
        state="stable",
        generation=7,
        members=(member,),
        idle=(),
        rebalances=4,
        last_rebalance_at=TIME,
        rebalancing_ms=250,
        progress=(progress,),
        dead_letters=2,
        stuck=(PAUSED,),
    )


def test_settings_of_topics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    topics = {
        "refunds": GroupTopicSettings(filter="", retries=Fixed(max=2), dead_letter=False),
        "orders": GroupTopicSettings(filter="key = 'a'"),
    }
    info = description().group
    group_views.print_settings(replace(info, settings=GroupSettings(topics=topics)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split(None, 3) == ["in", "topic", "orders", "filter key = 'a'"]
    assert lines[-1].endswith("filter none; retries 2, each after 1s; after the last discarded")


def test_a_description_has_everything_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    group_views.print_description(description(), now=TIME)
    assert (
        capsys.readouterr().out
        == f"""\
name            billing
status          paused
lag             17 messages, the oldest published 3m ago
members         1 (stable, generation 7)
rebalances      4, the last 0s ago; partitions waited 250ms in total
dead letters    2; list them with `lakelog dead list billing`
paused          refunds
kind            lease
order           key
filter          none
retries         3, after 1s and then twice as long, up to 1m
after the last  kept as a dead letter
window          2000
assignor        cooperative-sticky

MEMBER               HOST        PARTITIONS  SEEN
{WORKER}  10.0.12.34  orders/0-1  3s

PARTITION  COMMITTED  END  LAG  LEASED  WAITING  OLDEST  STATUS
orders/1   3          20   17   6       0        3m      paused

LEASE OF  OWNER                OFFSETS  ENDS IN
orders/1  {WORKER}  3, 5-9   25s (suspect)

Why messages wait:
  orders/1 (paused for 3m): The group is paused. Resume it with `lakelog groups resume billing`.
    Ask: `lakelog doctor`
"""
    )


def test_a_description_has_the_limits_of_dead_letters(capsys: pytest.CaptureFixture[str]) -> None:
    retention = DeadLetterRetention(max_age_ms=90 * 86_400_000, max_count=10_000)
    group_views.print_description(description(dead_letter_retention=retention), now=TIME)
    assert "after the last  kept as a dead letter, up to 90d, at most 10,000 per partition" in capsys.readouterr().out


def test_a_description_has_one_count_of_dead_letters(capsys: pytest.CaptureFixture[str]) -> None:
    """Seven died since the last seek, two are still there: only the two are shown."""
    group_views.print_description(description(), now=TIME)
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if "dead" in line and "kept as" not in line] == [
        "dead letters    2; list them with `lakelog dead list billing`"
    ]
    assert "7" not in shown.replace("17", "").replace("generation 7", "")


def test_a_description_fits_80_columns_and_breaks_no_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    found = description()
    (one,) = found.progress
    large = replace(one, committed=123_456_789, high_watermark=987_654_321, lag=864_197_532, status="rebalancing")
    runs = tuple((n, n) for n in range(100_000, 100_100, 2))
    long = replace(one, partition=12, leases=(replace(one.leases[0], offsets=runs),))
    group_views.print_description(replace(found, progress=(large, long)), now=TIME)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())
    words = (
        WORKER,
        "123456789",
        "987654321",
        "864197532",
        "rebalancing",
        "orders/12",
        "100000, 100002, 100004, … (50)",
    )
    assert [word for word in words if word not in shown] == []


def test_a_command_in_a_reason_stays_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator copies it from the terminal."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    found = description()
    damage = Damage(123_456_000, 123_456_789)
    reason = unreadable(engine_group(), "orders.european.v2", 12, damage)
    (one,) = found.progress
    stuck = replace(PAUSED, code=StuckCode.DAMAGED_SEGMENT, text=reason, remedies=())
    group_views.print_description(replace(found, progress=(replace(one, status="unreadable"),), stuck=(stuck,)), TIME)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    command = "`lakelog groups skip billing orders.european.v2 --partition 12 --to 123456789`"
    assert [line for line in lines if command in line] and any("unreadable" in line for line in lines)
    assert all(len(line) <= 80 or command in line for line in lines)


def engine_group() -> Group:
    info = description().group
    return Group(
        group_id=1,
        scope=Scope(project="p", environment="e", environment_id=1),
        name="billing",
        kind=info.kind,
        settings=info.settings,
        version=1,
        cell=0,
        paused=frozenset(),
        created_at=TIME,
    )


def listed(name: str = "billing", **fields: Any) -> GroupSummary:
    group = description().group
    stated: dict[str, Any] = {
        "status": "no-consumer",
        "lag": 1_234_567,
        "oldest_at": later(-200),
        "member_count": 12,
        "dead_letters": 0,
    }
    return GroupSummary(
        name=name,
        kind=group.kind,
        settings=group.settings,
        version=group.version,
        paused=group.paused,
        created_at=group.created_at,
        **{**stated, **fields},
    )


def test_a_list_has_ages_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    idle = listed("email", status="caught-up", lag=0, oldest_at=None, member_count=0, dead_letters=10_000)
    group_views.print_list([listed(), idle], now=TIME)
    assert (
        capsys.readouterr().out
        == """\
GROUP    LAG        OLDEST  MEMBERS  DEAD     STATUS
billing  1,234,567  3m      12       0        no-consumer
email    0                  0        10,000+  caught-up
"""
    )


def test_a_list_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    name = "fraud-detection-features-v2"
    group_views.print_list([listed(name, lag=123_456_789, dead_letters=10_000)], now=TIME)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())
    assert all(word in shown for word in (name, "123,456,789", "no-consumer", "10,000+"))


def test_the_list_as_json_has_the_names_of_the_http_api() -> None:
    shown = to_builtins(listed())
    assert (shown["group_id"], shown["kind"], shown["member_count"]) == ("billing", "lease", 12)


def test_json_has_the_names_of_the_http_api() -> None:
    shown: Any = json.decode(json.encode(group_views.described(description())))
    assert (shown["group_id"], shown["lag"], shown["paused"]) == ("billing", 17, ["refunds"])
    assert shown["settings"]["retries"]["base_ms"] == 1000
    assert shown["members"][0]["assigned_partitions"] == {"orders": [0, 1]}
    assert (shown["rebalances"], shown["rebalancing_ms"]) == (4, 250)
    (progress,), (lease,) = shown["progress"], shown["leases"]
    assert progress["leases"] == [lease]
    assert (lease["topic"], lease["partition"], lease["offsets"]) == ("orders", 1, [[3, 3], [5, 9]])


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
        "state": DeadLetterState.DEAD,
    }
    return DeadLetter(**{**stated, **fields})


def shown(found: DeadLetter) -> dict[str, Any]:
    return json.decode(json.encode(dead._shape(found)))


def test_a_dead_letter_has_the_names_of_the_http_api() -> None:
    found = shown(letter(key=b"\xff", raw=b"\xfe", headers={"a": "b"}, lineage="1-0-1#1", redriven_to="1-0-9"))
    assert found == {
        "id": "1-0-3",
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "epoch": 0,
        "state": "dead",
        "error": "timeout",
        "deliveries": 4,
        "failures": 4,
        "dead_at": "2026-01-31T12:00:00Z",
        "owner": "w-1",
        "headers": {"a": "b"},
        "key_base64": "/w==",
        "value_base64": "/g==",
        "lineage": "1-0-1#1",
        "redriven_to": "1-0-9",
    }
    assert shown(letter(key=b"k", raw=b"text", content_type="text/plain"))["value"] == "text"
    assert shown(letter(raw=b'{"a":1}', content_type="application/json"))["value"] == {"a": 1}


def test_the_traceback_of_a_dead_letter_is_printed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    traceback = 'Traceback (most recent call last):\n  File "app.py", line 9, in bill\nValueError: \x1b[31mred\n'
    dead._print_letter(letter(raw=b"text", traceback=traceback))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "traceback",
        "  Traceback (most recent call last):",
        '    File "app.py", line 9, in bill',
        "  ValueError: \\x1b[31mred",
    ]
    assert shown(letter(traceback=traceback))["traceback"] == traceback
    assert "traceback" not in shown(letter())


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "alter", "billing"],
        ["groups", "alter", "billing", "--order", "random"],
        ["groups", "alter", "billing", "--window", "0"],
        ["groups", "alter", "billing", "--inherit"],
        ["groups", "seek", "billing", "orders"],
        ["groups", "skip", "billing", "orders", "--to", "4"],
        ["groups", "skip", "billing", "orders", "--partition", "0", "--to", "earliest"],
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
    """A client whose redrive returns a given result."""

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


REFUSED = Redriven(refused=2, refusals=(RefusedDeadLetter(id="1-0-3", reason="redriven too often"),), has_more=True)


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


def test_a_history_has_a_line_for_each_point(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    some: dict[str, Any] = {"leased": 4, "waiting": 1, "members": 2, "dead_letters": 3}
    points = [
        HistoryPoint(at=at, lag=1200, oldest_seconds=95, **some),
        HistoryPoint(at=at + timedelta(minutes=1), lag=0, oldest_seconds=0, done_per_second=20.25, **some),
    ]
    found = GroupHistory(group="billing", since=at, until=at, step_seconds=60, points=points)
    group_views.print_history(found)
    assert [line.split() for line in capsys.readouterr().out.splitlines()][1:] == [
        ["2026-01-31", "12:00", "1,200", "1m", "4", "1", "2", "3"],
        ["2026-01-31", "12:01", "0", "4", "1", "20.2", "2", "3"],
    ]
    group_views.print_history(replace(found, points=[]))
    assert "No samples" in capsys.readouterr().err
