"""`lakelog mcp`: serves read-only tools for language models over standard input and output."""

from __future__ import annotations

from typing import Annotated

import typer

from lakelog.cli.target import TokenOption, UrlOption, find_target


def mcp(
    url: UrlOption = None,
    token: TokenOption = None,
    payloads: Annotated[
        bool,
        typer.Option("--payloads", help="Show keys, values, headers and errors of messages to the model."),
    ] = False,
) -> None:
    """Answer questions of language models: MCP over stdin and stdout.

    The tools only read: why_stuck, group, find_messages, message_story and dead_clusters. They use your URL and token.
    """
    import asyncio

    import lakelog
    from lakelog.mcp.serving import serve

    found = find_target(url, token)

    async def run() -> None:
        async with lakelog.connect_async(found.url, token=found.token or "", timeout=15.0) as log:
            await serve(log, payloads=payloads)

    asyncio.run(run())
