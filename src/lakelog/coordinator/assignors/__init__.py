"""Assignors: how the partitions of topics are shared out among a group's members. Pure; one module per policy."""

from lakelog.coordinator.assignors.balancer import Assignment, MemberTopics, PartitionCounts, Policy, idle
from lakelog.coordinator.assignors.policies import POLICIES

__all__ = ["POLICIES", "Assignment", "MemberTopics", "PartitionCounts", "Policy", "idle"]
