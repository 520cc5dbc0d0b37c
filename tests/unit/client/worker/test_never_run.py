"""A program that subscribes handlers and ends without running them gets one warning; other programs get none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import lakelog

log = lakelog.connect("memory://")
orders = log.topic("orders")


@orders.subscribe(group="billing")
def bill(order):
    print("billed", order)


orders.subscribe(print, group="audit")
"""
WARNING = (
    "The program ended without running its handlers: bill (topic 'orders', group 'billing'), "
    "print (topic 'orders', group 'audit'). Call `log.run()` at its end, or start it with `lakelog worker app:log`.\n"
)
# Python 3.12 and later warn of a fork beside threads, which is not what the test is about.
FORKS = "import os, warnings\nwarnings.simplefilter('ignore')\nif os.fork():\n    os.wait()\n"


def errors_of(folder: Path, *arguments: str) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stderr


@pytest.mark.parametrize("more", ["", "log.close()", FORKS, "bill({'total': 3})"])
def test_a_program_that_never_runs_its_handlers_is_warned_once(tmp_path: Path, more: str) -> None:
    (tmp_path / "app.py").write_text(APP + more)
    assert errors_of(tmp_path, "app.py") == WARNING == errors_of(tmp_path, "-m", "app")


def test_the_warning_says_what_can_be_written(tmp_path: Path) -> None:
    """Only what can be imported from here is named, and a coroutine is run as such."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shop/app.py").write_text(APP.replace("connect(", "connect_async("))
    said = errors_of(tmp_path, "shop/app.py")
    assert "Call `asyncio.run(log.run())` at its end, or start it with `lakelog worker shop.app:log`." in said
    assert errors_of(tmp_path / "elsewhere", "../shop/app.py").endswith("Call `asyncio.run(log.run())` at its end.\n")


@pytest.mark.parametrize(
    "program",
    [
        "import app; app.bill({'total': 3})",
        "from app import orders; orders.create(); orders.publish(1)",
        "import app; app.orders.create(); app.log.start()",
    ],
)
def test_a_module_that_is_imported_is_not_warned(tmp_path: Path, program: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    assert errors_of(tmp_path, "-c", program) == ""


@pytest.mark.parametrize("more", ["orders.create()\nlog.start()\nlog.stop()", "log.start()", "1 / 0"])
def test_a_program_that_started_its_handlers_or_failed_is_not_warned(tmp_path: Path, more: str) -> None:
    (tmp_path / "app.py").write_text(APP + more)
    assert "without running" not in errors_of(tmp_path, "app.py")
