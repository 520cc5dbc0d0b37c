"""A minimal JSON client over one kept-alive HTTP connection: many clients of a scenario share a small machine."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Refused(Exception):
    """A response that is not a 2xx."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        super().__init__(status, problem.get("code"), problem.get("detail"))
        self.status = status
        self.code = str(problem.get("code"))
        self.problem = problem


class JsonConnection:
    """A connection that makes one call at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded response. Raise `Refused` for anything but a 2xx."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        payload = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        status = int(status_line.split()[1])
        answer = json.loads(data) if data else None
        if not 200 <= status < 300:
            raise Refused(status, answer or {})
        return answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
