"""Decisions of load processes: messages that can be regenerated, and recognition of refusals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from lakelog.model.limits import MAX_MESSAGE_BYTES
from prove.history.lease_lines import is_refusal, value_of
from prove.lab.load.calls import HttpCaller
from prove.lab.load.messages import does, make
from prove.lab.load.plan import ProducerPlan
from prove.lab.shared_progress import ProgressField, SharedProgress

PLAN = ProducerPlan(
    name="p", role="producer", slot=0, folder="", ports=[1], seed=1, topic="t", rate=1, batch=1, partitions=1, kill=0.1
)


def test_a_message_can_be_made_again_by_whoever_takes_over() -> None:
    assert make(PLAN, "p-1", 7) == make(PLAN, "p-1", 7)
    assert make(PLAN, "p-1", 7) != make(PLAN, "p-2", 7)
    assert len({make(PLAN, "p-1", number).value for number in range(500)}) == 500


def test_messages_say_what_shall_become_of_them_in_the_shares_asked_for() -> None:
    shares = Counter(does(make(PLAN, "p-1", number).value) for number in range(4000))
    assert set(shares) == {"good", "bad", "kill", "discard"}
    assert 15 < shares["bad"] < 80 and 300 < shares["kill"] < 500


def test_odd_messages_are_empty_as_long_as_is_allowed_or_no_text() -> None:
    plan = msgspec.structs.replace(PLAN, odd=0.1)
    made = [make(plan, "p-1", number) for number in range(400)]
    assert {len(each.value) for each in made} >= {0, MAX_MESSAGE_BYTES}
    assert any("value_base64" in each.body for each in made)
    assert all(
        value_of(each.body) == each.value and does(each.value) in ("good", "bad", "kill", "discard") for each in made
    )


def test_only_a_definite_refusal_of_ours_is_one() -> None:
    assert [status for status in (200, 400, 404, 408, 409, 413, 429, 500, 503) if is_refusal(status)] == [
        400, 404, 409, 413,
    ]  # fmt: skip


def test_who_takes_over_asks_another_server() -> None:
    for slot in range(20):
        caller = HttpCaller([1, 2, 3], 1.0, first=slot)
        asked = HttpCaller([1, 2, 3], 1.0, first=slot).choose()
        assert caller.choose() == asked
        caller.avoid(asked)
        assert caller.choose() != asked


def test_the_board_is_shared_and_survives_its_writer(tmp_path: Path) -> None:
    writer = SharedProgress(tmp_path / "progress")
    writer.add(3, ProgressField.PUBLISHED, 5)
    writer.add(4, ProgressField.PUBLISHED, 2)
    del writer
    reader = SharedProgress(tmp_path / "progress")
    assert (reader.get(3, ProgressField.PUBLISHED), reader.total(ProgressField.PUBLISHED), reader.throttle_level) == (
        5,
        7,
        0,
    )
    SharedProgress(tmp_path / "progress").throttle(2)
    assert reader.throttle_level == 2
