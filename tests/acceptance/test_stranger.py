"""The first hour of a new user: the README and the tutorial, every block as written, from the built wheel.

A page that gains a block that cannot run fails here (see `tests.kit.pages`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.stranger import Stranger
from tests.kit.claims import followed_pages


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", followed_pages(), ids=lambda page: page.stem)
def test_every_block_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    stranger = Stranger(page, tmp_path)
    stranger.follow({"SPARK_LOCAL_IP": "127.0.0.1"})
    for took in stranger.took:
        print(f"{took.seconds:6.1f} s  {took.what}")
