"""Handlers on executors: a driver that leases, and child processes that run message after message."""
