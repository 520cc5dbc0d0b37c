"""A partition with one group, for examples: a letter is a message with that key, `-` one without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lakelog.coordinator.leasing.codec import encode_state
from lakelog.coordinator.leasing.operations import (
    Accepted,
    AcquireMessages,
    Candidates,
    ExclusionReason,
    ExtendLease,
    FinishMessages,
    Granted,
    LeasingConfig,
    Operation,
    ReturnKind,
    ReturnMessages,
    StepContext,
    StepResult,
)
from lakelog.coordinator.leasing.state import DeliveryState, begin
from lakelog.coordinator.leasing.step import step
from lakelog.errors import LakelogError
from lakelog.model.group import Fixed, Order

NOW = 1_000_000
LEASE = 30_000
RETRY = 1000


class Partition:
    """Its clock does not move unless a test changes `now`."""

    def __init__(self, keys: str, *, start: int = 0, **config: Any) -> None:
        self.config = LeasingConfig(**{"order": Order.KEY, "retries": Fixed(max=1, seconds=RETRY / 1000), **config})
        self.keys = [0 if letter == "-" else ord(letter) for letter in keys]
        self.state: DeliveryState = begin(start)
        self.now = NOW
        self.log_start = 0
        self.filtered: set[int] = set()
        self.expires: dict[int, int] = {}
        self.last: StepResult | None = None

    def change(self, **config: Any) -> None:
        self.config = replace(self.config, **config)

    def context(self) -> StepContext:
        return StepContext(
            now_ms=self.now,
            chance=0.5,
            config=self.config,
            candidates=Candidates(
                start=0,
                keys=self.keys,
                excluded=dict.fromkeys(self.filtered, ExclusionReason.FILTERED),
                expires=self.expires,
            ),
            log_start=self.log_start,
            high_watermark=len(self.keys),
        )

    def step(self, *operations: Operation) -> StepResult:
        self.last = step(self.state, operations, self.context())
        return self.last

    def do(self, operation: Operation) -> Any:
        [reply] = self.step(operation).replies
        return reply

    def refusal(self, operation: Operation) -> str:
        """Its code. It changed nothing (S9)."""
        before = encode_state(self.state)
        taken = self.step(operation)
        [reply] = taken.replies
        assert isinstance(reply, LakelogError), reply
        assert not taken.events
        assert encode_state(self.state) == before
        return reply.code

    # Short forms ------------------------------------------------------------------------------------------------------

    def take(self, count: int = 100, owner: str = "ann", **more: Any) -> Granted:
        reply = self.do(AcquireMessages(**{"owner": owner, "max_messages": count, "lease_ms": LEASE, **more}))
        assert isinstance(reply, Granted), reply
        return reply

    def offsets(self, count: int = 100, owner: str = "ann", **more: Any) -> list[int]:
        """Return the granted lease; none if nothing is available."""
        reply = self.do(AcquireMessages(**{"owner": owner, "max_messages": count, "lease_ms": LEASE, **more}))
        return list(reply.offsets) if isinstance(reply, Granted) else []

    def ack(self, token: int | None, *offsets: int, owner: str = "ann") -> None:
        assert self.do(acks(token, *offsets, owner=owner)) == Accepted()

    def nack(self, token: int | None, *offsets: int, owner: str = "ann", **more: Any) -> list[int]:
        """Those that died of it."""
        reply = self.do(nacks(token, *offsets, owner=owner, **more))
        assert isinstance(reply, Accepted), reply
        return list(reply.dead)

    def release(self, token: int | None, *offsets: int, owner: str = "ann") -> None:
        assert self.do(nacks(token, *offsets, owner=owner, kind=ReturnKind.RELEASE)) == Accepted()

    def lose(self) -> None:
        """Let all leases expire, and run a step."""
        self.now = max(lease.until_ms for lease in self.state.leases.values())
        self.step()


def acks(token: int | None, *offsets: int, owner: str = "ann", **more: Any) -> FinishMessages:
    return FinishMessages(owner=owner, token=token, ranges=[(offset, offset + 1) for offset in offsets], **more)


def nacks(
    token: int | None, *offsets: int, owner: str = "ann", kind: ReturnKind = ReturnKind.NACK, **more: Any
) -> ReturnMessages:
    ranges = [(offset, offset + 1) for offset in offsets]
    return ReturnMessages(owner=owner, token=token, ranges=ranges, kind=kind, **more)


def extends(token: int | None, lease_ms: int = LEASE, owner: str = "ann", **more: Any) -> ExtendLease:
    return ExtendLease(owner=owner, token=token, lease_ms=lease_ms, **more)
