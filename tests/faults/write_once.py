"""A program that makes one write, as a Spark job does: stages in several attempts, decides, prints the decision.

`python -m tests.faults.write_once URL CELLS TOPIC WRITE_ID FIRST COUNT`; a fail point may kill it anywhere.
"""

from __future__ import annotations

import json
import secrets
import sys

import pyarrow as pa

import lakelog
from lakelog.client.publishing.staging import StagingEncoder
from lakelog.model.write import DecideOptions, StageOptions

TASKS = 3


def main() -> None:
    url, cells, name, write_id, first, count = sys.argv[1:]
    with lakelog.connect(url, cells=json.loads(cells), allow_not_durable=True) as log:
        topic = log.topic(name).describe()
        attempts, total = [], 0
        for task in range(TASKS):
            numbers = range(int(first) + task, int(first) + int(count), TASKS)
            rows = pa.record_batch({"key": [str(n) for n in numbers], "value": [f"{write_id}:{n}" for n in numbers]})
            attempt = secrets.token_hex(8)
            wish = StageOptions(write_id=write_id, attempt=attempt, incarnation=topic.incarnation, epoch=topic.epoch)
            cutter = StagingEncoder(topic)
            for share in [*cutter.add(rows), *cutter.rest()]:
                log.writes.stage(name, wish, share)
            attempts.append(attempt)
            total += cutter.count
        decide = DecideOptions(
            write_id=write_id, attempts=attempts, count=total, incarnation=topic.incarnation, epoch=topic.epoch
        )
        written = log.writes.decide(name, decide)
        print(json.dumps({"count": written.count, "won": written.won}), flush=True)


if __name__ == "__main__":
    main()
