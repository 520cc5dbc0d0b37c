"""The process that extends the leases of a worker: `python -m lakelog.client.worker.keeper_process`.

A worker starts it. The process reads JSON lines from its standard input: the address of the server, then the leases to
keep and until when. It extends leases only while its parent runs, not when the parent is stopped, a zombie or gone: the
leases of a dead worker must expire.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lakelog.client._sync.transport import Transport
from lakelog.client.worker.lease_extension import ExtensionSchedule, KeptLease, LeaseHolder, SendExtensions, send_due
from lakelog.errors import LakelogError
from lakelog.model.lease import Answered, LeaseAnswer

_TICK_SECONDS = 0.5
_REST_SECONDS = 0.02
"""The pause after each read. A busy worker sends many lines, and most of them cancel each other."""
_OPEN_SECONDS = 10.0
_RUNNING = "RSDI"


class ParentProcess:
    """The process of the worker, whose state the kernel reports."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def gone(self) -> bool:
        return os.getppid() != self._pid

    @property
    def runs(self) -> bool:
        """True if the worker runs. A stopped worker does not count: its leases must expire like those of a dead one."""
        try:
            stat = Path(f"/proc/{self._pid}/stat").read_text(errors="replace")
        except FileNotFoundError:
            # Without /proc, only the death of the parent can be noticed.
            return not self.gone and not Path("/proc/self/stat").exists()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in _RUNNING and not self.gone


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Service managers send these to all processes. The worker still finishes its handlers and needs its leases.
        signal.signal(number, signal.SIG_IGN)
    lines = JsonLines(sys.stdin.fileno())
    settings = lines.first()
    if settings is not None:
        with contextlib.closing(open_transport(settings)) as transport:
            with contextlib.suppress(OSError):
                os.write(sys.stdout.fileno(), b"ready\n")
            keep(lines, ParentProcess(settings["parent"]), sender(transport))


def keep(lines: JsonLines, parent: ParentProcess, send: SendExtensions) -> None:
    schedule = ExtensionSchedule()
    while not parent.gone:
        next_due = schedule.next_due()
        wait = _TICK_SECONDS if next_due is None else min(_TICK_SECONDS, max(0.0, next_due - time.monotonic()))
        for line in lines.read(wait):
            note(schedule, line)
        if lines.ended:
            return
        if schedule.due(time.monotonic()):
            if parent.runs:
                send_due(schedule, send, contextlib.nullcontext())
            time.sleep(_REST_SECONDS)


def note(schedule: ExtensionSchedule, line: Any) -> None:
    """Apply a line: `[number, topic, …]` keeps a lease, `[number, until]` changes its end, `[number]` drops it."""
    match line:
        case [number, topic, group, owner, partition, token, lease_seconds, until, due]:
            holder = LeaseHolder(topic, group, owner)
            schedule.keep(number, KeptLease(holder, partition, token, lease_seconds, until, due))
        case [number, until]:
            schedule.prolong(number, until)
        case [number]:
            schedule.drop(number)


class JsonLines:
    """Reads JSON lines from a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._rest = b""
        self.ended = False

    def first(self) -> dict[str, Any] | None:
        """Wait for the first line, and return it; None if the pipe ends before it."""
        while not self.ended:
            head, mark, self._rest = self._rest.partition(b"\n")
            if mark:
                found: dict[str, Any] = json.loads(head)
                return found
            self._rest = head
            self._receive()
        return None

    def read(self, wait_seconds: float) -> Iterator[Any]:
        if b"\n" not in self._rest:
            readable, _, _ = select.select([self._pipe], [], [], wait_seconds)
            if not readable:
                return
            time.sleep(_REST_SECONDS)
            self._receive()
        whole, mark, rest = self._rest.rpartition(b"\n")
        if mark:
            self._rest = rest
            yield from map(json.loads, whole.split(b"\n"))

    def _receive(self) -> None:
        data = os.read(self._pipe, 1 << 20)
        self.ended = not data
        self._rest += data


def open_transport(settings: dict[str, Any]) -> Transport:
    """Return a transport to the server. Over HTTP, load only the connection: the process must start quickly."""
    if settings["url"].startswith(("http://", "https://")):
        from lakelog.client._sync.http import HttpTransport
        from lakelog.client.connecting.servers import servers_of
        from lakelog.client.connecting.trust import TlsFiles

        files = TlsFiles(**settings.get("tls_files", {}))
        return HttpTransport(servers_of(settings["url"], files), settings["token"])
    from lakelog.client._sync.embedded import EmbeddedTransport
    from lakelog.client.embedding.engine import EmbeddedSettings
    from lakelog.client.embedding.portal import EngineHost

    embedded = EmbeddedSettings(
        url=settings["url"], cells=settings["cells"], allow_not_durable=settings["allow_not_durable"], agents=False
    )
    host = EngineHost(embedded, settings["project"], settings["environment"], own_thread=True)
    transport = EmbeddedTransport(host)
    with contextlib.suppress(LakelogError):
        transport.open(_OPEN_SECONDS)
    return transport


def sender(transport: Transport) -> SendExtensions:
    def send(holder: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float) -> list[Answered | LakelogError]:
        return transport.answer(holder.request(answers), seconds)

    return send


if __name__ == "__main__":
    main()
