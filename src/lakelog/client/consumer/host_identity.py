"""The identity of this host or container, for consumers that resume where a program on the same host stopped."""

from __future__ import annotations

import os
import re
import socket
import uuid
from pathlib import Path

VARIABLE = "LAKELOG_HOST_ID"

_CONTAINER = re.compile(r"(?:docker|containers?|kubepods|crio|libpod)\S*?([0-9a-f]{64})")
_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_UNSAFE = re.compile(r"[^a-z0-9._-]+")
_LONGEST = 80


def resumable_group(given: str | None = None, root: Path = Path("/")) -> str:
    """Return the name of the group of this host: of `given`, the variable, the container, the machine, or its network.

    Args:
        given: The identity that the caller chose. Default: found as described.
        root: The root of the file system.
    """
    found = given or os.environ.get(VARIABLE) or _container_id(root) or _machine_id(root)
    name = _UNSAFE.sub("-", (found or f"{socket.gethostname()}-{uuid.getnode():012x}").lower()).strip("-.")
    return f"resumable-{name[:_LONGEST]}"


def _container_id(root: Path) -> str | None:
    """Return the first digits of the container's id, by which Docker and Kubernetes show it."""
    for name in ("proc/self/cgroup", "proc/self/mountinfo"):
        match = _CONTAINER.search(_text(root / name))
        if match is not None:
            return match[1][:12]
    return None


def _machine_id(root: Path) -> str | None:
    return next((text for name in _MACHINE_IDS if (text := _text(root / name.lstrip("/")).strip())), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
