"""Starts programs with the Python client of both versions, and compares what they published, handled and got as errors.

The checker judges the calls of the laboratory's own clients. These programs retry inside of the client, so their lines
are compared directly: every published message is stored once, at its receipt, and handled.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import lakelog
from prove.lab.load.calls import TOKEN
from prove.lab.topology import Topology
from prove.upgrade.library_client import GROUP, ROLES, TOPIC
from prove.upgrade.release import CURRENT, ROOT, Release
from tests.kit.process import Process
from tests.kit.waiting import eventually

PARTITIONS = 4
DRAINED_SECONDS = 60.0
Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LibraryFigures:
    """The messages of the programs, and everything that is wrong."""

    published: int
    handled: int
    again: int
    """The number of messages that were handled more than once."""
    wrong: tuple[str, ...]


class LibraryLoad:
    """The programs of a run: two publishers, a batching producer and two workers of each version."""

    def __init__(self, topology: Topology, old: Release) -> None:
        self._topology = topology
        self._folder = topology.folder / "library"
        self._folder.mkdir()
        self._releases = {"old": old, "new": CURRENT}
        self._running: dict[str, Process] = {}

    def start(self) -> None:
        self._topology.request("POST", "/v1/topics", {"name": TOPIC, "partitions": PARTITIONS})
        for age, release in self._releases.items():
            for role in (*ROLES, "publish", "work"):
                name = f"{age}-{role}-{len(self._running)}"
                self._running[name] = self._start(name, role, release)

    def _start(self, name: str, role: str, release: Release) -> Process:
        ports = self._topology.client_ports
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports)
        program = ROOT / "prove" / "upgrade" / "library_client.py"
        argv = [*release.argv()[:1], str(program), role, name, str(self._folder), urls]
        env = {**release.environment, TOKEN: self._topology.token}
        return self._topology.supervisor.start(argv, env=env, name=name)

    def stop(self) -> LibraryFigures:
        """End publishers, wait until the group has handled everything, end workers, and compare."""
        codes = {name: self._end(name) for name in self._running if "work" not in name}
        drained = self._drain()
        codes |= {name: self._end(name) for name in self._running if "work" in name}
        wrong = [f"{name} ended with {code}" for name, code in codes.items() if code != 0]
        return compare(self._lines(), self._stored(), [*wrong, *drained])

    def _end(self, name: str) -> int:
        return self._running[name].terminate(within=90)

    def _drain(self) -> list[str]:
        def lag() -> int:
            found: int = self._topology.request("GET", f"/v1/groups/{GROUP}/lag")["lag"]
            return found

        try:
            eventually(lambda: lag() == 0, within=DRAINED_SECONDS, every=0.5, what="the programs handle everything")
        except AssertionError as error:
            return [f"{GROUP} was not drained: {error}"]
        return []

    def _lines(self) -> list[Line]:
        texts = (path.read_text().splitlines() for path in sorted(self._folder.glob("*.jsonl")))
        return [json.loads(line) for line in chain.from_iterable(texts)]

    def _stored(self) -> list[tuple[str, int, int]]:
        url = f"http://127.0.0.1:{self._topology.servers[0].port}"
        with lakelog.connect(url, token=self._topology.token) as log:
            found = log.topic(TOPIC).read()
            return [(each.value, each.partition, each.offset) for each in found]


def compare(lines: Sequence[Line], stored: Iterable[tuple[str, int, int]], wrong: Sequence[str] = ()) -> LibraryFigures:
    """Compare the lines of all programs with the stored messages, each with its value, partition and offset."""
    places: dict[str, list[tuple[int, int]]] = {}
    for value, partition, offset in stored:
        places.setdefault(value, []).append((partition, offset))
    published = [line for line in lines if "published" in line]
    handled = Counter(line["handled"] for line in lines if "handled" in line)
    found = [*wrong, *(f"a client got an error: {line['error']}" for line in lines if "error" in line)]
    found += [f"{value} is stored {len(those)} times" for value, those in places.items() if len(those) > 1]
    for line in published:
        value = line["published"]
        if value not in places:
            found.append(f"{value} was published and is not stored")
        elif "offset" in line and (line["partition"], line["offset"]) not in places[value]:
            found.append(f"{value} is not stored at its receipt")
    found += [f"{value} is stored and was never handled" for value in places if value not in handled]
    found += [f"{value} was handled and is not stored" for value in handled if value not in places]
    return LibraryFigures(
        published=len(published),
        handled=len(handled),
        again=sum(count > 1 for count in handled.values()),
        wrong=tuple(found),
    )
