"""Faults of the object store: errors, silence, lost answers, bodies that break off, files that hold other bytes."""

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
"""Servers and drivers repeat what failed: readers that wait too long see it, or a pass that gave up."""

DAMAGES = {
    "they break off": S3Faults(truncated=1.0),
    "they are too short": S3Faults(shortened=1.0),
    "one bit is another": S3Faults(flipped=1.0),
    "those of another file": S3Faults(swapped=1.0),
}


class _OfStore(BaseFault):
    """One at a time."""

    counts_by = _SHOWN
    drivers = 1

    def claim_store(self, topology: Topology, chance: random.Random, least: float, most: float) -> None:
        # As long as the longest of the others has it.
        self.claim(topology, ["object store"], within=30.0)
        self.seconds = chance.uniform(least, most)

    def end(self, topology: Topology) -> None:
        topology.store_proxy.pass_through()
        self.release(topology)


class StoreFails(_OfStore):
    """500 and 503; the store has seen nothing."""

    kind = "object store answers 5xx"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 6.0, 9.0)
        topology.store_proxy.faults = S3Faults(refused=chance.choice((0.7, 1.0)))


class StoreStalls(_OfStore):
    """It does what it was asked, and does not answer."""

    kind = "object store times out"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 5.0, 8.0)
        topology.store_proxy.faults = S3Faults(stalled=chance.choice((0.5, 1.0)))


class StoreSlow(_OfStore):
    """Every request takes seconds: readers of history wait, and what others ask for does not."""

    kind = "object store takes seconds"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 8.0, 12.0)
        topology.store_proxy.faults = S3Faults(delay_seconds=chance.uniform(2.0, 4.0))


class StoredUntold(_OfStore):
    """The file is there; its writer sees the connection break, and finds it there when it tries again."""

    kind = "PUT stored, answer lost"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 8.0, 12.0)
        topology.store_proxy.faults = S3Faults(lost=1.0, methods=("PUT",))


class BodiesDamaged(_OfStore):
    """What is read breaks off, is shorter than it should be, or is not what was stored."""

    kind = "object store answers other bytes"

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 6.0, 9.0)
        self.about = chance.choice(list(DAMAGES))
        topology.store_proxy.faults = DAMAGES[self.about]


class FilesSpoilt(_OfStore):
    """A partial upload, a bit that flipped on the disk, a swapped file. Some are good, so that tiering gets on.

    Drivers are slow to look at what they have registered: whoever trusts it too early has the time to.
    """

    kind = "stored as other bytes"
    counts_by = Evidence.by(Symptom.TIERED_AGAIN, roles=TIERING, after=20.0)

    def begin(self, topology: Topology, chance: random.Random) -> None:
        self.claim_store(topology, chance, 18.0, 24.0)
        self.claim(topology, ["tiering"], within=30.0)
        (topology.folder / POINTS / EVERY).write_text("tier.registered=delay,tier.before_verify=delay")
        how = chance.choice(list(Corruption))
        self.about = how.value
        topology.store_proxy.spoil(how, 0.7, chance.randrange(1 << 30))

    def end(self, topology: Topology) -> None:
        (topology.folder / POINTS / EVERY).unlink(missing_ok=True)
        super().end(topology)
