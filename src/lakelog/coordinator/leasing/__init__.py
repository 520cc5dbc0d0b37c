"""Leasing: which owner holds which messages of a partition, their outcomes, and the progress of the group.

`step` decides and `apply` changes the state. The position of a cursor group is the frontier of a state without leases.
"""

from lakelog.coordinator.leasing.applying import apply
from lakelog.coordinator.leasing.closed_leases import ClosedLease, DeliveryOutcome
from lakelog.coordinator.leasing.codec import decode_state, decode_summary, encode_events, encode_state, replay
from lakelog.coordinator.leasing.operations import (
    Accepted,
    AcquireMessages,
    Candidates,
    CommitPosition,
    DeadMessage,
    ExclusionReason,
    ExtendLease,
    FinishMessages,
    Granted,
    LeasingConfig,
    NothingAvailable,
    Operation,
    Reply,
    ReturnKind,
    ReturnMessages,
    SeekPosition,
    SkipTo,
    StepContext,
    StepResult,
)
from lakelog.coordinator.leasing.state import (
    DeliveryHistory,
    DeliveryState,
    FinishedCounts,
    Lease,
    MessageState,
    WaitingMessage,
    begin,
)
from lakelog.coordinator.leasing.step import step
from lakelog.coordinator.leasing.summary import ProgressSummary, summarize

__all__ = [
    "Accepted",
    "AcquireMessages",
    "Candidates",
    "ClosedLease",
    "CommitPosition",
    "DeadMessage",
    "DeliveryHistory",
    "DeliveryOutcome",
    "DeliveryState",
    "ExclusionReason",
    "ExtendLease",
    "FinishMessages",
    "FinishedCounts",
    "Granted",
    "Lease",
    "LeasingConfig",
    "MessageState",
    "NothingAvailable",
    "Operation",
    "ProgressSummary",
    "Reply",
    "ReturnKind",
    "ReturnMessages",
    "SeekPosition",
    "SkipTo",
    "StepContext",
    "StepResult",
    "WaitingMessage",
    "apply",
    "begin",
    "decode_state",
    "decode_summary",
    "encode_events",
    "encode_state",
    "replay",
    "step",
    "summarize",
]
