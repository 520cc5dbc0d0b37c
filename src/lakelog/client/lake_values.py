"""What `log.lake` takes and gives: plain frozen values, the same in the engine, over HTTP and here."""

from lakelog.model.lake import (
    PartitionPlan,
    Plan,
    PlanWish,
    Registered,
    RegisterStatus,
    TierRange,
    TierWish,
    Watermarks,
)
from lakelog.model.segment import Segment

__all__ = [
    "PartitionPlan",
    "Plan",
    "PlanWish",
    "RegisterStatus",
    "Registered",
    "Segment",
    "TierRange",
    "TierWish",
    "Watermarks",
]
