"""Feeds mutated payloads and streams to the doors for callers' data, and uses whatever they let through.

A program of its own, run by `test_hostile_input`, so that a crash of Arrow is a failed test and not a dead test run:
`python -m tests.unit.batches.mutations SEED COUNT` prints one JSON object.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import struct
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from lakelog.batches import (
    columns,
    concat,
    decode,
    encode,
    from_messages,
    partitions_of,
    read_stream,
    split,
    validate,
    with_positions,
)
from lakelog.batches.schema import NAMES
from lakelog.errors import InvalidBatch, TooLarge, UnsupportedFormat
from tests.unit.batches.samples import caller_batch, messages, stream

ODD_NUMBERS = (
    0,
    1,
    7,
    8,
    255,
    65_535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    -1,
    -2,
    -8,
    -(2**31),
    -(2**63),
)


def samples() -> list[tuple[Callable[[bytes], None], bytes]]:
    """Valid inputs, each with the function that reads it."""
    payloads = [encode(from_messages(messages(count))) for count in (1, 3, 12, 60)]
    streams = [
        stream([caller_batch(3)]),
        stream([from_messages(messages(3))]),
        stream([from_messages(messages(20)), from_messages(messages(20))], compression="zstd"),
        stream([caller_batch(20)], compression="lz4"),
    ]
    return [(use_payload, payload) for payload in payloads] + [(use_stream, body) for body in streams]


def use_payload(payload: bytes) -> None:
    use(validate(payload))
    use(decode(payload))


def use_stream(body: bytes) -> None:
    batches = read_stream(body)
    plain = [batch.select([name for name in batch.schema.names if name in NAMES]) for batch in batches]
    for batch in batches:
        columns(batch)
    use(concat(plain))


def use(batch: pa.RecordBatch) -> None:
    """All that happens to a message between the doors: reading past a buffer would show here."""
    columns(batch)
    columns(with_positions(batch, 1, 2, 3))
    columns(decode(encode(batch)))
    if "key" in batch.schema.names:
        spread = abs(partitions_of(batch.column("key"), 3))
        for _, part in split(batch, spread, 3):
            columns(decode(encode(part)))


def mutate(random_: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """The data with one to three things wrong: anywhere, or only in the last half, where the bodies are."""
    changed = bytearray(data)
    for _ in range(random_.randint(1, 3)):
        first = random_.choice((0, len(changed) // 2))
        at = random_.randrange(first, len(changed)) if first < len(changed) else 0
        step = random_.randrange(8)
        if step <= 1 and changed:
            changed[at] ^= 1 << random_.randrange(8)
        elif step == 2 and changed:
            changed[at] = random_.randrange(256)
        elif step <= 5:
            layout = random_.choice("bhiq")
            size = struct.calcsize(layout)
            number = random_.choice(ODD_NUMBERS) & (1 << 8 * size) - 1
            place = at - at % size
            changed[place : place + size] = number.to_bytes(size, "little")
        elif step == 6:
            del changed[at : at + random_.choice((1, 4, 8, 64, len(changed)))]
        else:
            other = random_.choice(others)
            cut = random_.randrange(len(other))
            changed[at : at + 16] = other[cut : cut + 16]
    return bytes(changed)


def main(seed: int, count: int) -> None:
    faulthandler.enable()
    # A declared size that gets past the checks must fail here, and not take the machine's memory.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    random_ = random.Random(seed)
    known = samples()
    outcomes: Counter[str] = Counter()
    for read, data in known:
        read(data)
    for _ in range(count):
        read, data = random_.choice(known)
        mutated = mutate(random_, data, [other for _, other in known])
        try:
            read(mutated)
            outcomes["accepted"] += 1
        except (InvalidBatch, TooLarge, UnsupportedFormat) as exc:
            assert str(exc)
            outcomes[exc.code] += 1
        except Exception as exc:
            raise AssertionError(f"seed {seed}: {type(exc).__name__} instead of a refusal: {mutated.hex()}") from exc
    # Not ru_maxrss: that one begins with what the parent had when it started this process.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) << 10
    sys.stdout.write(json.dumps({"outcomes": outcomes, "peak_bytes": peak}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
