"""Fail points: what arms them, at which hit they act, and what each action does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from lakelog import failpoints
from lakelog.errors import ConfigurationError, Unavailable


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_nothing_is_armed_by_itself() -> None:
    assert not failpoints.armed
    failpoints.hit("publish.after_commit")


def test_a_point_acts_at_every_hit_and_with_a_number_only_at_that_one() -> None:
    failpoints.arm(" always=error , third=error@3 ")
    for _ in range(2):
        with pytest.raises(Unavailable, match="always"):
            failpoints.hit("always")
        failpoints.hit("third")
    with pytest.raises(Unavailable, match="third"):
        failpoints.hit("third")
    failpoints.hit("third")
    failpoints.hit("other")


def test_arming_replaces_what_was_armed() -> None:
    failpoints.arm("one=error")
    failpoints.arm("two=error")
    failpoints.hit("one")
    with pytest.raises(Unavailable):
        failpoints.hit("two")
    failpoints.arm("")
    assert not failpoints.armed


@pytest.mark.parametrize("text", ["point", "point=explode", "point=kill@soon", "point=kill@-1", "point="])
def test_what_cannot_be_armed_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigurationError, match="NAME=ACTION"):
        failpoints.arm(text)


def test_actions_kill_stop_and_delay_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[tuple[int, int]] = []
    delays: list[float] = []
    monkeypatch.setattr(os, "kill", lambda pid, sent: signals.append((pid, sent)))
    monkeypatch.setattr(time, "sleep", delays.append)
    failpoints.arm("a=kill,b=stop,c=delay")
    for name in "abc":
        failpoints.hit(name)
    assert signals == [(os.getpid(), signal.SIGKILL), (os.getpid(), signal.SIGSTOP)]
    assert delays == [0.5]


def test_the_environment_arms_them_in_a_new_process() -> None:
    program = (
        "from lakelog import failpoints as f; f.hit('here'); print('once', flush=True); f.hit('here'); print('never')"
    )
    environment = {**os.environ, failpoints.ENVIRONMENT_VARIABLE: "here=kill@2"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "once\n")
