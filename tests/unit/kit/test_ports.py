"""A port that one test process was given goes to no other, although nothing listens on it yet."""

from __future__ import annotations

import subprocess
import sys

from tests.kit.ports import free_port

_ASK_FOR_ONE = """
import sys
from tests.kit import ports
ports._FIRST = ports._LAST = int(sys.argv[1])
print(ports.free_port())
"""


def test_a_second_process_does_not_get_a_port_that_is_reserved() -> None:
    port = free_port()
    other = subprocess.run([sys.executable, "-c", _ASK_FOR_ONE, str(port)], capture_output=True, text=True)
    assert other.returncode == 1, other.stdout
    assert f"no free port between {port} and {port}" in other.stderr


def test_a_port_is_free_again_when_its_process_has_ended() -> None:
    port = free_port()
    ended = subprocess.run(
        [sys.executable, "-c", "from tests.kit.ports import free_port; print(free_port())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    again = subprocess.run([sys.executable, "-c", _ASK_FOR_ONE, ended], capture_output=True, text=True, check=True)
    assert int(again.stdout) == int(ended) != port
