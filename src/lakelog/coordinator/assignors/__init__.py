"""Assignors: how the partitions of topics are shared out among a group's members. Pure; one module per policy."""

from lakelog.coordinator.assignors.policies import POLICIES
from lakelog.coordinator.assignors.shares import Assignment, Counts, Members, Policy, idle

__all__ = ["POLICIES", "Assignment", "Counts", "Members", "Policy", "idle"]
