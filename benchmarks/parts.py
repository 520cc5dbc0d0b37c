"""The jars of peers, which `scripts/install` only fetches on request: `scripts/install --part kafka`."""

from __future__ import annotations

import subprocess
from pathlib import Path

KAFKA, KAFKA_CONNECTOR = "kafka", "spark-kafka"

_ROOT = Path(__file__).parents[1]


def folder(part: str) -> Path:
    return _ROOT / ".parts" / part


def is_installed(part: str) -> bool:
    # The stamp is written when all jars are there.
    return (folder(part) / ".installed").exists()


def install(part: str) -> None:
    """Fetch the jars of a part. Return at once if they are there."""
    if not is_installed(part):
        subprocess.run([str(_ROOT / "scripts/install"), "--part", part], check=True, stdout=subprocess.DEVNULL)
