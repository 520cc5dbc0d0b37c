"""The messages that every benchmark sends: seeded, order-like JSON values of 200 bytes with keys of 16 bytes.

The same seed gives the same bytes on every machine.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import pyarrow as pa

SEED = 20_260_101
PARTITIONS = 4
VALUE_BYTES = 200
KEY_BYTES = 16
DISTINCT = 100_000
"""Number of distinct messages; longer runs repeat them. It exceeds any batch or compression window by far."""
RATIO_RANGE = (2.5, 4.0)

_ACCOUNTS = 10_000
_STATUSES = ("created", "paid", "packed", "shipped", "delivered", "returned")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_LETTERS = string.ascii_letters + string.digits + " "


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The messages: `objects[i]` encodes to `values[i]`, with the key `keys[i]`."""

    keys: list[bytes]
    objects: list[dict[str, Any]]
    values: list[bytes]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def table(self) -> pa.Table:
        """Return the same messages as columns."""
        return pa.table({"key": pa.array(self.keys, pa.binary()), "value": pa.array(self.values, pa.binary())})

    @cached_property
    def ratio(self) -> float:
        """Return the zstd level 1 compression ratio of a batch of 1,000 values."""
        batch = b"".join(self.values[:1000])
        return len(batch) / len(pa.Codec("zstd", compression_level=1).compress(batch, asbytes=True))


@lru_cache(maxsize=1)
def corpus(distinct: int = DISTINCT) -> Corpus:
    rng = random.Random(SEED)
    keys, objects, values = [], [], []
    for number in range(distinct):
        account = f"acct_{rng.randrange(_ACCOUNTS):011d}"
        order = _order(rng, number, account)
        keys.append(account.encode())
        objects.append(order)
        values.append(msgspec.json.encode(order))
    made = Corpus(keys=keys, objects=objects, values=values)
    _check(made)
    return made


def _order(rng: random.Random, number: int, account: str) -> dict[str, Any]:
    order: dict[str, Any] = {
        "order_id": f"{rng.getrandbits(96):024x}",
        "account": account,
        "status": rng.choice(_STATUSES),
        "cents": rng.randrange(100, 500_000),
        "items": [{"sku": f"{rng.getrandbits(32):08x}", "n": rng.randrange(1, 9)}],
        "at": (_START + timedelta(milliseconds=number * 997)).isoformat(timespec="seconds")[:19] + "Z",
        "note": "",
    }
    missing = VALUE_BYTES - len(msgspec.json.encode(order))
    order["note"] = "".join(rng.choices(_LETTERS, k=missing))
    return order


def _check(made: Corpus) -> None:
    """Check the corpus. A benchmark on another corpus would not be comparable."""
    assert {len(value) for value in made.values} == {VALUE_BYTES}, "a value is not of 200 bytes"
    assert {len(key) for key in made.keys} == {KEY_BYTES}, "a key is not of 16 bytes"
    low, high = RATIO_RANGE
    assert low <= made.ratio <= high, f"zstd-1 ratio {made.ratio:.2f} is not between {low} and {high}"
