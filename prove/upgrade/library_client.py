"""A program that uses the Python client: `python -m prove.upgrade.library_client ROLE NAME FOLDER URLS`.

It runs with the client of either version, so it imports nothing but the standard library and Lakelog's public names. It
writes one JSON line per message or error, until SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import lakelog

TOPIC, GROUP = "library", "library"
EVERY_SECONDS = 0.02
BATCH = 50
_stopped = threading.Event()


class LineFile:
    """Lines that survive a kill of the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        self._file.close()


def publish(log: Any, name: str, lines: LineFile) -> None:
    """Publish one message per call, each with an idempotency key."""
    topic = log.topic(TOPIC)
    number = 0
    while not _stopped.wait(EVERY_SECONDS):
        value = f"{name}-{number}"
        number += 1
        try:
            receipt = topic.publish(value, key=str(number % 50), idempotency_key=value)
        except lakelog.LakelogError as error:
            lines.write(error=repr(error), value=value)
        else:
            lines.write(published=value, partition=receipt.partition, offset=receipt.offset)


def send(log: Any, name: str, lines: LineFile) -> None:
    """Publish numbered batches in the background."""
    number = 0
    with log.topic(TOPIC).producer(on_error=lambda error, _: lines.write(error=repr(error))) as producer:
        while not _stopped.wait(BATCH * EVERY_SECONDS):
            values = [f"{name}-{number + each}" for each in range(BATCH)]
            number += BATCH
            for value in values:
                producer.send(value, key=value[-2:])
            producer.flush()
            for value in values:
                lines.write(published=value)


def work(log: Any, name: str, lines: LineFile) -> None:
    """Handle messages until SIGTERM."""

    @log.topic(TOPIC).subscribe(group=GROUP, concurrency=8, start_from="earliest")  # type: ignore[untyped-decorator]
    def handle(value: str) -> None:
        time.sleep(0.001)
        lines.write(handled=value)

    log.run()


ROLES = {"publish": publish, "send": send, "work": work}


def main(role: str, name: str, folder: str, urls: str) -> int:
    lines = LineFile(Path(folder) / f"{name}.jsonl")
    if role != "work":
        # `run` of a worker has its own handler.
        signal.signal(signal.SIGTERM, lambda number, frame: _stopped.set())
    try:
        with lakelog.connect(urls, timeout=60) as log:
            ROLES[role](log, name, lines)
    except BaseException:
        lines.write(error=traceback.format_exc())
        return 1
    else:
        lines.write(ended=name, code=lakelog.__file__)
        return 0
    finally:
        lines.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
