"""A worker of the SDK; some of its messages kill its process.

Run as `python -m tests.faults.killing_worker URL TOPIC GROUP OPTIONS`, with options of `subscribe` as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import lakelog
from lakelog.model.group import Exponential

RETRIES = Exponential(max=2, base_seconds=0.1, max_seconds=0.2)


def handle(value: str) -> None:
    time.sleep(0.005)
    if value.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    url, topic, group, options = sys.argv[1:]
    log = lakelog.connect(url)
    log.topic(topic).subscribe(
        handle, group=group, lease=2.0, retries=RETRIES, start_from="earliest", **json.loads(options)
    )
    log.run()


if __name__ == "__main__":
    main()
