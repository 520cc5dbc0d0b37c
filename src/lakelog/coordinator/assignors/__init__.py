"""Assignors: policies that distribute the partitions of topics among the members of a group. Pure functions."""

from lakelog.coordinator.assignors.balancer import Assignment, MemberTopics, PartitionCounts, Policy, idle
from lakelog.coordinator.assignors.policies import POLICIES

__all__ = ["POLICIES", "Assignment", "MemberTopics", "PartitionCounts", "Policy", "idle"]
