"""Faults by their names, grouped in files by the affected part."""

from prove.lab.faults import clients, clocks, groups, network, object_store, postgres, resources, servers, tiering
from prove.lab.faults.fault import BaseFault, Fault

KINDS: dict[str, type[BaseFault]] = {
    each.kind: each
    for each in (
        servers.ServerKilled,
        servers.ServersKilled,
        servers.ServerKilledAtPoint,
        servers.ServerStopped,
        servers.RollingRestart,
        clients.WorkerKilled,
        clients.WorkerStopped,
        clients.ProducerKilled,
        clients.MemberKilled,
        clients.MemberStopped,
        clients.TieringDriverKilled,
        postgres.BackendsTerminated,
        postgres.PostgresKilled,
        postgres.PostgresStopped,
        postgres.DiskFails,
        postgres.ConnectionStorm,
        postgres.HeldSnapshot,
        network.LinkDown,
        network.LinkHalfOpen,
        network.SlowLink,
        network.AnswersDropped,
        network.DatabaseLinkDown,
        network.DatabaseHalfOpen,
        network.DatabaseAnswersDropped,
        network.RequestsLate,
        network.OldAnswer,
        clocks.ClockAhead,
        clocks.ClockBehind,
        object_store.StoreFails,
        object_store.StoreStalls,
        object_store.StoreSlow,
        object_store.StoredUntold,
        object_store.BodiesDamaged,
        object_store.FilesCorrupted,
        tiering.DriverKilled,
        tiering.DriverStopped,
        tiering.TaskKilled,
        tiering.TwoDrivers,
        tiering.RegistrationUntold,
        tiering.VerificationUntold,
        tiering.HotDeleteKilled,
        resources.DescriptorsGone,
        resources.MemoryGone,
        resources.ProcessorsTaken,
        groups.Churn,
        groups.PartitionsAdded,
    )
}

__all__ = ["KINDS", "BaseFault", "Fault"]
