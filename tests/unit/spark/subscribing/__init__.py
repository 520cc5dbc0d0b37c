"""Rounds and children of a subscription, without Spark."""
