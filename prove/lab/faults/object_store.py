"""Faults of the object store: errors, timeouts, lost responses, truncated bodies, and corrupted files."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prove.lab.faults.fault import READING, TIERING, BaseFault, Evidence, Symptom
from prove.lab.load.tiering_driver import EVERY, POINTS
from prove.lab.store_link import Corruption
from tests.kit.s3_faults import S3Faults

if TYPE_CHECKING:
    from prove.lab.topology import Topology

_SHOWN = Evidence.by(Symptom.UNKNOWN, Symptom.TIERED_AGAIN, roles=READING | TIERING, after=20.0)
"""The symptoms of a fault that servers and drivers retry: readers that time out, or a tiering pass that gave up."""

DAMAGES = {
    "truncated": S3Faults(truncated=1.0),
    "too short": S3Faults(shortened=1.0),
    "one bit flipped": S3Faults(flipped=1.0),
    "bytes of another file": S3Faults(swapped=1.0),
}


class _OfStore(BaseFault):
    """Affects the object store. Only one such fault is active at a time."""

    counts_by = _SHOWN
    drivers = 1

    def claim_store(self, topology: Topology, chance: random.Random, least: float, most: float) -> None:
        # Wait for as long as the longest of these faults lasts.
        self.claim(topology, ["object store"], within=30.0)
        self.seconds = chance.uniform(least, most)

    def end(self, topology: Topology) -> None:
        topology.store_proxy.pass_through()
        self.release(topology)


class StoreFails(_OfStore):
    """The store returns 500 and 503, and does nothing."""

    kind = "object store answers 5xx"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 6.0, 9.0)
        topology.store_proxy.faults = S3Faults(refused=chance.choice((0.7, 1.0)))


class StoreStalls(_OfStore):
    """The store performs requests, but does not respond."""

    kind = "object store times out"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 5.0, 8.0)
        topology.store_proxy.faults = S3Faults(stalled=chance.choice((0.5, 1.0)))


class StoreSlow(_OfStore):
    """Every request takes seconds: readers of history wait, and other calls do not."""

    kind = "object store takes seconds"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 8.0, 12.0)
        topology.store_proxy.faults = S3Faults(delay_seconds=chance.uniform(2.0, 4.0))


class StoredUntold(_OfStore):
    """A file is stored, but its writer loses the connection, and finds the file when it retries."""

    kind = "PUT stored, answer lost"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 8.0, 12.0)
        topology.store_proxy.faults = S3Faults(lost=1.0, methods=("PUT",))


class BodiesDamaged(_OfStore):
    """A response is truncated, too short, or has other bytes than were stored."""

    kind = "object store answers other bytes"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 6.0, 9.0)
        self.about = chance.choice(list(DAMAGES))
        topology.store_proxy.faults = DAMAGES[self.about]


class FilesCorrupted(_OfStore):
    """Stored files are corrupted: a partial upload, a flipped bit, or a swapped file.

    Some files are good, so that tiering progresses.

    Drivers wait before they verify registered files, so that a server that uses unverified files is detected.
    """

    kind = "stored as other bytes"
    counts_by = Evidence.by(Symptom.TIERED_AGAIN, roles=TIERING, after=20.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 18.0, 24.0)
        self.claim(topology, ["tiering"], within=30.0)
        (topology.folder / POINTS / EVERY).write_text("tier.registered=delay,tier.before_verify=delay")
        how = chance.choice(list(Corruption))
        self.about = how.value
        topology.store_proxy.corrupt(how, 0.7, chance.randrange(1 << 30))

    def end(self, topology: Topology) -> None:
        (topology.folder / POINTS / EVERY).unlink(missing_ok=True)
        super().end(topology)
