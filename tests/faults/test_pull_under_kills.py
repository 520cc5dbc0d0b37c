"""Programs that pull messages while they and the servers are killed: S8 to S16 hold, and repeats are bounded.

Full size: 32 programs of all kinds on 8 partitions, 200,000 messages, a program killed each second, each server once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prove.checker.judgement import assert_valid
from prove.pull.command import figures_of
from prove.pull.plan import SIZES
from prove.pull.run import PullRun
from tests.kit.postgres import Cluster
from tests.kit.size import Size


@pytest.mark.timeout(1800)
def test_programs_lose_nothing_and_repeat_only_what_their_commit_mode_allows(
    cluster: Cluster, size: Size, tmp_path: Path
) -> None:
    """S1-S17, S19, and the bounds of each commit mode."""
    result = PullRun(cluster, tmp_path, SIZES[size.value], seed=1).run()
    assert figures_of(result, seed=1).wrong == ()
    assert_valid({**result.judged})
    assert sum(result.kills.values()) >= SIZES[size.value].kills
    assert result.messages >= SIZES[size.value].messages
