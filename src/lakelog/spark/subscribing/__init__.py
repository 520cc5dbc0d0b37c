"""Handlers on executors: a driver that leases messages, and child processes that run handlers."""
