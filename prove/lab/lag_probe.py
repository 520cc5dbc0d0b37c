"""What servers tell of a group's lag, beside what the databases say at that moment, every few seconds (L7).

The truth is asked of the databases past all servers and proxies, by an engine of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from itertools import cycle
from typing import TYPE_CHECKING

import lakelog
from lakelog.errors import LakelogError
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller

if TYPE_CHECKING:
    from prove.lab.topology import Topology

NAME = "lag"
EVERY = 1.5
"""One group after the other."""
UNTOLD = -1
AROUND = 3
"""So often the truth is asked before what is told, and after: a lag moves by hundreds in a part of a second."""
APART = 0.25
_PATIENCE = 0.8
"""What takes longer to tell may be a second old."""


class LagProbe:
    """`with LagProbe(topology):` while there is load."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lag probe", daemon=True)

    def __enter__(self) -> None:
        self._topology.recorded.append(NAME)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)

    def _run(self) -> None:
        topology = self._topology
        # That a database is away is nothing to tell here.
        logging.getLogger("lakelog").addHandler(logging.NullHandler())
        caller = HttpCaller(topology.client_ports, _PATIENCE, token=topology.token)
        url, cells = topology.database_urls()
        # Whether it is durable is judged by others.
        connected = lakelog.connect(url, cells=cells, timeout=3, allow_not_durable=True)
        with HistoryRecorder(topology.folder / "history", NAME) as recorder, connected as log:
            for topic, group in cycle(topology.workload.all_groups):
                if self._stopped.wait(EVERY):
                    break
                self._look(recorder, caller, log.topic(topic), group)
        caller.close()

    def _look(self, recorder: HistoryRecorder, caller: HttpCaller, topic: lakelog.Topic[object], group: str) -> None:
        try:
            self._ask_truth(recorder, topic, group)
            began = time.monotonic()
            reply = caller.call("GET", f"/v1/groups/{group}/lag")
            if reply.outcome == "ok" and time.monotonic() < began + _PATIENCE:
                recorder.sample("lag", reply.data["lag"], topic.lag(group), topic=topic.name, group=group)
            self._ask_truth(recorder, topic, group)
        except LakelogError:
            return

    def _ask_truth(self, recorder: HistoryRecorder, topic: lakelog.Topic[object], group: str) -> None:
        for _ in range(AROUND):
            recorder.sample("lag", UNTOLD, topic.lag(group), topic=topic.name, group=group)
            self._stopped.wait(APART)
