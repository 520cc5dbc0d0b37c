"""Faults by their names, grouped in files by the part that they hit."""

from prove.lab.faults import clients, groups, network, postgres, servers
from prove.lab.faults.fault import Base, Fault

KINDS: dict[str, type[Base]] = {
    each.kind: each
    for each in (
        servers.ServerKilled,
        servers.ServersKilled,
        servers.ServerStopped,
        servers.RollingRestart,
        clients.WorkerKilled,
        clients.WorkerStopped,
        clients.ProducerKilled,
        clients.MemberKilled,
        clients.TiererKilled,
        postgres.BackendsTerminated,
        postgres.PostgresKilled,
        postgres.PostgresStopped,
        postgres.HeldSnapshot,
        network.LinkDown,
        network.HalfOpen,
        network.SlowLink,
        network.AnswersDropped,
        network.DatabaseLinkDown,
        network.DatabaseHalfOpen,
        network.DatabaseAnswersDropped,
        network.RequestsLate,
        network.OldAnswer,
        groups.Churn,
        groups.PartitionsAdded,
    )
}

__all__ = ["KINDS", "Base", "Fault"]
