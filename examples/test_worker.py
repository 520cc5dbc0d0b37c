"""Test the handler of worker.py with the pytest plugin of Lakelog: no server, no waiting for retries.

pytest examples/test_worker.py
"""

import pytest
from worker import bill, log

from lakelog.testing import MemoryInstallation


def test_an_order_is_billed(lakelog_memory: MemoryInstallation, capsys: pytest.CaptureFixture[str]) -> None:
    lakelog_memory.topic("example-work").publish({"total": 12})
    assert lakelog_memory.drain(bill).acked == 1
    assert capsys.readouterr().out == "billed 12, attempt 1\n"


def test_a_failed_run_is_repeated(lakelog_memory: MemoryInstallation, capsys: pytest.CaptureFixture[str]) -> None:
    lakelog_memory.attach(log)
    log.topic("example-work").publish({"total": 12})
    lakelog_memory.fail_next(bill, error=ConnectionError("the bank is away"))
    assert lakelog_memory.drain().failed == 1
    lakelog_memory.clock.advance(minutes=5)
    assert lakelog_memory.drain().acked == 1
    assert capsys.readouterr().out == "billed 12, attempt 2\n"


def test_a_negative_total_is_given_up(lakelog_memory: MemoryInstallation, capsys: pytest.CaptureFixture[str]) -> None:
    lakelog_memory.topic("example-work").publish({"total": -1})
    assert lakelog_memory.drain(bill).failed == 1
    assert lakelog_memory.drain(bill).failed == 0  # the retry is not due yet
    lakelog_memory.clock.advance(minutes=5)
    assert lakelog_memory.drain(bill).dead == 1
    assert capsys.readouterr().out == "gave up {'total': -1}: a negative total\n"
    assert lakelog_memory.group("billing").lag() == 0
