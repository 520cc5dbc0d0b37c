"""Seeds that failed in the past, each with its violation. `simulate --known` runs these seeds first.

A change of the engine or of the simulation alters what happens in a seed, so a seed may no longer show its bug. Each
kind of bug also has a unit test, or a fault that makes it frequent. Never remove a seed; add every one that fails.
"""

from __future__ import annotations

from collections.abc import Mapping

_UNTOLD = (
    "S12: a lease whose commit got no response was not reported, and the call returned leases of another partition"
)
_LOST = "S9: an ack whose commit got no response was refused after the end of the lease, although it had been written"

KNOWN: Mapping[int, str] = {
    15206: _UNTOLD,
    26495: _UNTOLD,
    26671: "S16, of the simulation: the figures of a partition whose cell did not respond were taken for its progress",
    32452: _UNTOLD,
    36593: _UNTOLD,
    35320: "S12, of the simulation: a lease that came with answers was released, because its messages were not read",
    37867: _UNTOLD,
    38006: "S11, of the simulation: the drain ended before the group's position had passed what retention removed",
    300177: "S9, of the simulation: the network's repeat of a nack arrived before the nack itself",
    700089: "S11, of the simulation: retention cut the log while the final state was read",
    885742: _LOST,
    3004645: "S9, of the simulation: a duplicated extend made the lease longer than its owner knew",
    3040534: _LOST,
}
