"""Flame graphs of a leg, drawn by py-spy: one of this process with its children, one of each server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kit.process import Process

_ROOT = Path(__file__).parents[1]
_PY_SPY = Path(sys.executable).with_name("py-spy")
_WRITE_SECONDS = 60.0


@contextmanager
def drawn(folder: Path, benchmark: str, servers: Sequence[Process]) -> Iterator[None]:
    """Sample while the context is open, and write `BENCHMARK-client.svg` and `BENCHMARK-server.svg` at its end."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [""] if len(servers) == 1 else [f"-{number}" for number in range(1, len(servers) + 1)]
    pids = {f"server{number}": server.pid for number, server in zip(numbers, servers, strict=True)}
    samplers = _start({"client": os.getpid(), **pids}, folder, benchmark)
    try:
        yield
    finally:
        for sampler in samplers.values():
            sampler.send_signal(signal.SIGINT)
        for path, sampler in samplers.items():
            sampler.wait(_WRITE_SECONDS)
            # The title contains the command with the folder that it was started from.
            path.write_text(path.read_text().replace(f"{_ROOT}/", ""))


def _start(pids: Mapping[str, int], folder: Path, benchmark: str) -> dict[Path, subprocess.Popen[bytes]]:
    samplers = {}
    for part, pid in pids.items():
        path = folder / f"{benchmark}-{part}.svg"
        argv = [str(_PY_SPY), "record", "--subprocesses", "--function", "--rate", "200", "--pid", str(pid)]
        argv += ["--output", str(path)]
        samplers[path] = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return samplers
