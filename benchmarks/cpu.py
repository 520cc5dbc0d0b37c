"""Processor time by part: the client with its child processes, the servers, PostgreSQL, and the servers of peers.

On a shared machine, processor time per message says more than a rate.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from benchmarks.environment import Environment


@dataclass(frozen=True, kw_only=True)
class Used:
    """Seconds of processor time that each part has used so far."""

    client: float
    server: float
    postgresql: float
    peers: float

    def per_message(self, before: Used, messages: float) -> Mapping[str, float]:
        """Return the processor time of each part since `before`, in microseconds per message, by note name."""
        parts = ("client", "server", "postgresql", "peers")
        return {f"{part}_us": (getattr(self, part) - getattr(before, part)) * 1e6 / messages for part in parts}


def used(environment: Environment) -> Used:
    # A child process adds its time to the client when it is waited for; servers keep running and add nothing.
    client = os.times()
    return Used(
        client=client.user + client.system + client.children_user + client.children_system,
        server=sum(_tree(server.pid) for server in environment.servers if server.running),
        postgresql=_tree(environment.cluster.process.pid),
        peers=sum(_tree(peer.pid) for peer in environment.peers if peer.running),
    )


def _tree(pid: int) -> float:
    """Return the time of a process, of its running descendants, and of those that it has waited for."""
    root = psutil.Process(pid)
    seconds = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            # It has just ended, and counts as waited for from now on.
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
