"""Compares the lag that servers report with the lag in the databases, every few seconds (L7).

The true lag is read directly from the databases, by a separate engine.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from itertools import cycle
from typing import TYPE_CHECKING

import lakelog
from lakelog.errors import LakelogError, SchemaOutOfDate
from prove.history.recorder import HistoryRecorder
from prove.lab.load.calls import HttpCaller

if TYPE_CHECKING:
    from prove.lab.topology import Topology

NAME = "lag"
EVERY = 1.5
"""The interval between two samples. The groups are sampled in turn."""
UNTOLD = -1
AROUND = 3
"""The number of true values read before and after each reported one, because a lag can change by hundreds within a
second.
"""
APART = 0.25
_PATIENCE = 0.8
"""A response that takes longer than this is dropped, because it may be a second old."""


class LagProbe:
    """Measures lags during the load: `with LagProbe(topology): ...`."""

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
        # Ignore databases that are down.
        logging.getLogger("lakelog").addHandler(logging.NullHandler())
        caller = HttpCaller(topology.client_ports, _PATIENCE, token=topology.token)
        url, cells = topology.database_urls()
        groups = cycle(topology.workload.all_groups)
        with HistoryRecorder(topology.folder / "history", NAME) as recorder:
            while not self._stopped.is_set():
                # Durability is checked elsewhere. During an upgrade, this version waits for the migration.
                connected = lakelog.connect(url, cells=cells, timeout=3, allow_not_durable=True)
                with contextlib.suppress(SchemaOutOfDate), connected as log:
                    while not self._stopped.wait(EVERY):
                        topic, group = next(groups)
                        self._look(recorder, caller, log.topic(topic), group)
                self._stopped.wait(EVERY)
        caller.close()

    def _look(self, recorder: HistoryRecorder, caller: HttpCaller, topic: lakelog.Topic[object], group: str) -> None:
        try:
            self._ask_truth(recorder, topic, group)
            began = time.monotonic()
            reply = caller.call("GET", f"/v1/groups/{group}/lag")
            if reply.outcome == "ok" and time.monotonic() < began + _PATIENCE:
                recorder.sample("lag", reply.data["lag"], topic.lag(group), topic=topic.name, group=group)
            self._ask_truth(recorder, topic, group)
        except SchemaOutOfDate:
            raise
        except LakelogError:
            return

    def _ask_truth(self, recorder: HistoryRecorder, topic: lakelog.Topic[object], group: str) -> None:
        for _ in range(AROUND):
            recorder.sample("lag", UNTOLD, topic.lag(group), topic=topic.name, group=group)
            self._stopped.wait(APART)
