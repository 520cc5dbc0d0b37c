"""Faults of groups: members come and go without end, partitions are added under load."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from prove.lab.faults.fault import MEMBERS, PUBLISHING, Base, Shown, Sign

if TYPE_CHECKING:
    from prove.lab.topology import Scene


class Churn(Base):
    """Many members join and leave, one every 200 ms and more often."""

    kind = "members come and go"
    counts_by = Shown.by(Sign.REFUSED, Sign.UNKNOWN, roles=MEMBERS)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = chance.uniform(4.0, 6.0)
        self.claim(scene, ["churn"])
        scene.staff.churn()

    def end(self, scene: Scene) -> None:
        scene.crew.dismiss("churn")
        (scene.folder / "stop" / "churn").unlink()
        self.release(scene)


class PartitionsAdded(Base):
    """Producers that number their batches are told, and choose anew; members get more to read."""

    kind = "partitions added"
    counts_by = Shown.by(Sign.REFUSED, roles=PUBLISHING | MEMBERS, after=4.0)

    def begin(self, scene: Scene, chance: random.Random) -> None:
        self.seconds = 1.0
        self.claim(scene, ["partitions"])
        self.about = scene.staff.add_partition()
