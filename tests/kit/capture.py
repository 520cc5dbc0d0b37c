"""Captures the TCP traffic of ports on the loopback interface, by stream. It needs the right to open raw sockets."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Collection
from types import TracebackType

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_OUTGOING = 4
_TCP = 6


class Capture:
    """`with Capture(ports) as capture:` records until the block ends. It raises `PermissionError` without rights."""

    def __init__(self, ports: Collection[int]) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        with contextlib.suppress(OSError):
            # SO_RCVBUFFORCE: root may exceed the limit of the machine.
            self._socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
        _attach(self._socket, _filter(ports))
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.1)
        self._streams: dict[tuple[int, int], bytearray] = defaultdict(bytearray)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)
        self.lost = 0
        """Packets that were not recorded."""

    def __enter__(self) -> Capture:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()
        _, self.lost = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._socket.close()

    def sent_to(self, port: int | None = None) -> list[bytes]:
        """Return the streams to this port, or all streams."""
        return [bytes(data) for (_, target), data in self._streams.items() if port in (None, target)]

    @property
    def ports(self) -> set[int]:
        """The ports that data was sent to."""
        return {target for (_, target), data in self._streams.items() if data}

    def _record(self) -> None:
        while True:
            try:
                frame, address = self._socket.recvfrom(1 << 17)
            except TimeoutError:
                if self._stopped.is_set():
                    return
                continue
            # The interface shows each packet twice: leaving and arriving.
            if address[2] != _OUTGOING:
                self._note(frame)

    def _note(self, frame: bytes) -> None:
        packet = frame[14:]
        if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
            return
        segment = packet[(packet[0] & 15) * 4 : int.from_bytes(packet[2:4], "big") or None]
        source, target = struct.unpack(">HH", segment[:4])
        self._streams[source, target] += segment[(segment[12] >> 4) * 4 :]


def _filter(ports: Collection[int]) -> bytes:
    """Return a program of the kernel's packet filter that accepts TCP from and to the ports: others use the machine."""
    half, byte, header, at_header, equal, done = 0x28, 0x30, 0xB1, 0x48, 0x15, 0x06
    drop = 7 + 2 * len(ports)
    program = [(half, 0, 0, 12), (equal, 0, drop - 2, 0x0800), (byte, 0, 0, 23), (equal, 0, drop - 4, _TCP)]
    program.append((header, 0, 0, 14))
    for at in (14, 16):
        program.append((at_header, 0, 0, at))
        for port in ports:
            program.append((equal, drop - len(program), 0, port))
    program += [(done, 0, 0, 0), (done, 0, 0, 1 << 17)]
    return b"".join(struct.pack("HBBI", *each) for each in program)


def _attach(listener: socket.socket, program: bytes) -> None:
    kept = ctypes.create_string_buffer(program)
    described = struct.pack("HL", len(program) // 8, ctypes.addressof(kept))
    listener.setsockopt(socket.SOL_SOCKET, 26, described)
