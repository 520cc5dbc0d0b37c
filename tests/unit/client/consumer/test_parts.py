"""The parts of a consumer that only compute: the identity of a host, and the progress in a partition."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakelog.client.consumer.host_identity import VARIABLE, resumable_group
from lakelog.client.consumer.read_progress import ReadProgress
from lakelog.model.names import check_name

CONTAINER = "0123456789ab" + 52 * "c"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def file(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proc/self/cgroup", f"0::/docker/{CONTAINER}\n"),
        ("proc/self/cgroup", f"12:pids:/kubepods/besteffort/pod1/{CONTAINER}\n"),
        ("proc/self/mountinfo", f"1 2 0:3 /var/lib/docker/containers/{CONTAINER}/hostname /etc/hostname rw\n"),
    ],
)
def test_a_container_has_the_group_of_its_id(tmp_path: Path, name: str, text: str) -> None:
    file(tmp_path, "etc/machine-id", "of the machine\n")
    file(tmp_path, name, text)
    assert resumable_group(None, tmp_path) == "resumable-0123456789ab"


def test_a_machine_has_the_group_of_its_id(tmp_path: Path) -> None:
    file(tmp_path, "etc/machine-id", "5f6d\n")
    file(tmp_path, "proc/self/cgroup", "0::/init.scope\n")
    assert resumable_group(None, tmp_path) == "resumable-5f6d"


def test_what_is_given_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file(tmp_path, "etc/machine-id", "5f6d\n")
    monkeypatch.setenv(VARIABLE, "from-env")
    assert resumable_group(None, tmp_path) == "resumable-from-env"
    assert resumable_group("Given/1", tmp_path) == "resumable-given-1"


def test_without_any_id_the_name_is_still_stable_and_valid(tmp_path: Path) -> None:
    found = resumable_group(None, tmp_path)
    assert found == resumable_group(None, tmp_path) == check_name("group", found)
    assert check_name("group", resumable_group(200 * "x", tmp_path))


def test_the_position_is_below_the_first_message_that_is_not_done() -> None:
    progress = ReadProgress(10)
    progress.give([10, 11, 12])
    assert (progress.given, progress.done) == (13, 10)
    progress.finish([11])
    assert progress.done == 10
    progress.finish([10])
    assert progress.done == 12
    progress.finish_through(12)
    assert progress.done == 13


def test_messages_that_were_given_long_ago_are_done() -> None:
    progress = ReadProgress(0)
    progress.give([0, 1])
    progress.finish_older(time.monotonic() - 60)
    assert progress.done == 0
    progress.finish_older(time.monotonic())
    assert progress.done == 2
