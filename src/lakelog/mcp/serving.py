"""Serves the tools over standard input and output, until the input ends."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from importlib import metadata
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.errors import LakelogError
from lakelog.mcp.answers import HIDDEN, UNTRUSTED
from lakelog.mcp.tools import Tools

_INSTRUCTIONS = (
    "Answers questions about one environment of a Lakelog installation: durable topics, and consumer groups that read "
    "them. Nothing can be changed here; answers contain commands for the user to run. Begin with `group` without a "
    "name, or with `why_stuck`. "
)


def create_server(log: AsyncLakelog, *, payloads: bool) -> MCPServer[Any]:
    """Return the server for a client.

    Args:
        log: The client, with the user's URL and token.
        payloads: Whether answers show keys, values, headers and errors of messages.
    """
    server: MCPServer[Any] = MCPServer(
        "lakelog",
        instructions=_INSTRUCTIONS + (UNTRUSTED if payloads else HIDDEN),
        version=metadata.version("lakelog"),
        # Standard output is the protocol's, and a model's host shows what is on standard error: only what went wrong.
        log_level="ERROR",
    )
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    for tool in Tools(log, payloads=payloads).all():
        server.add_tool(_explained(tool), annotations=hints)
    return server


async def serve(log: AsyncLakelog, *, payloads: bool) -> None:
    """Serve over standard input and output."""
    logging.getLogger("lakelog").setLevel(logging.ERROR)
    await create_server(log, payloads=payloads).run_stdio_async()


def _explained(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return the tool with errors of the client as texts that the model may read."""

    @wraps(tool)
    async def call(*args: Any, **given: Any) -> Any:
        try:
            return await tool(*args, **given)
        except LakelogError as error:
            raise ToolError(f"{error.code}: {error.detail}") from None

    return call
