"""The programs of a run: their kinds, their groups, and the sizes of runs."""

from __future__ import annotations

from dataclasses import dataclass

from prove.lab.load.plan import ClientPlan

TOPIC = "orders"
PARTITIONS = 8
LEASE_GROUP = "billing"
HOST = "proof"
LEASE_KINDS = ("next", "batch", "arrow")
MODES = ("immediate", "interval", "rolling", "manual")
RESUMABLE, REAL_TIME = "resumable", "real-time"
MODULE = "prove.pull.program"


class PullPlan(ClientPlan, frozen=True, kw_only=True):
    """The plan of one program.

    Attributes:
        kind: How it pulls: one of `LEASE_KINDS`, a commit mode of a cursor group, "resumable" or "real-time".
        lease: The lease of its messages, in seconds.
        session: The session timeout of its member, in seconds.
        interval: The commit interval, in seconds.
        work: The average time in seconds that it works after each call.
    """

    kind: str
    lease: float
    session: float
    interval: float
    work: float


@dataclass(frozen=True, kw_only=True)
class PullSize:
    """The size of a run.

    Attributes:
        messages: The number of messages to publish, at least.
        rate: The largest number of messages per second that are published.
        programs: The number of programs of each kind.
        kill_seconds: The time between two kills of programs.
        kills: The number of kills of programs, at least.
        server_shares: The share of the messages after which each server is killed.
        drain_seconds: The time in which all groups must have finished after the last fault.
    """

    messages: int
    rate: float
    programs: dict[str, int]
    kill_seconds: float
    kills: int
    server_shares: tuple[float, ...]
    lease: float
    session: float
    interval: float
    work: float
    drain_seconds: float
    most_lag: int = 20_000


SIZES = {
    "ci": PullSize(
        messages=1_000,
        rate=3_000,
        programs=dict.fromkeys((*LEASE_KINDS, *MODES), 1),
        kill_seconds=0.25,
        kills=4,
        server_shares=(0.3,),
        lease=1.0,
        session=1.0,
        interval=0.5,
        work=0.002,
        drain_seconds=60.0,
    ),
    "full": PullSize(
        messages=200_000,
        rate=1_500,
        programs={**dict.fromkeys((*LEASE_KINDS, *MODES), 4), RESUMABLE: 2, REAL_TIME: 2},
        kill_seconds=1.0,
        kills=100,
        server_shares=(0.3, 0.6),
        lease=8.0,
        session=6.0,
        interval=2.0,
        work=0.01,
        drain_seconds=300.0,
    ),
}


def group_of(kind: str) -> str:
    """Return the group of a kind of program; an empty text if it has none."""
    if kind in LEASE_KINDS:
        return LEASE_GROUP
    if kind == RESUMABLE:
        return f"resumable-{HOST}"
    return "" if kind == REAL_TIME else f"cursor-{kind}"


def mode_of(kind: str) -> str:
    """Return the commit mode of a program of a cursor group."""
    return "interval" if kind == RESUMABLE else kind
