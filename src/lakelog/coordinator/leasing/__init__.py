"""Leases: who works on which messages of a partition, what became of them, and how far the group is.

`step` decides, `apply` changes. A cursor group's position is the frontier of such a state, without leases.
"""

from lakelog.coordinator.leasing.applying import apply
from lakelog.coordinator.leasing.closed import Closed, Outcome
from lakelog.coordinator.leasing.codec import decode_figures, decode_state, encode_events, encode_state, replay
from lakelog.coordinator.leasing.figures import Figures, figures_of
from lakelog.coordinator.leasing.operations import (
    Candidates,
    Commit,
    Config,
    Context,
    Death,
    Done,
    Extend,
    Fate,
    GiveBack,
    Granted,
    Nothing,
    Operation,
    Reply,
    Return,
    Seek,
    Settle,
    SkipTo,
    Step,
    Take,
)
from lakelog.coordinator.leasing.state import Counts, Lease, Stage, State, Tally, Waiting, begin
from lakelog.coordinator.leasing.step import step

__all__ = [
    "Candidates",
    "Closed",
    "Commit",
    "Config",
    "Context",
    "Counts",
    "Death",
    "Done",
    "Extend",
    "Fate",
    "Figures",
    "GiveBack",
    "Granted",
    "Lease",
    "Nothing",
    "Operation",
    "Outcome",
    "Reply",
    "Return",
    "Seek",
    "Settle",
    "SkipTo",
    "Stage",
    "State",
    "Step",
    "Take",
    "Tally",
    "Waiting",
    "apply",
    "begin",
    "decode_figures",
    "decode_state",
    "encode_events",
    "encode_state",
    "figures_of",
    "replay",
    "step",
]
