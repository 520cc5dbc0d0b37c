"""The messages and exit codes of failed commands.

    0  done                         3  the topic, partition, group, dead letter or token does not exist
    1  refused, or failed           4  the server or PostgreSQL is unreachable or overloaded: retry
    2  wrong usage                130  stopped by Ctrl-C

A failed command prints one or two lines on stderr: what happened, and what to do next. `--debug` adds a traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from lakelog.cli.commands import OnDemandGroup
from lakelog.errors import (
    LakelogError,
    NotAuthenticated,
    NotFound,
    OutcomeUnknown,
    Overloaded,
    TopicExists,
    Unavailable,
)

OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130

# Packages of the `server` extra, which an installation of the client does not have.
_SERVER_PACKAGES = frozenset(
    [
        "asyncpg",
        "httptools",
        "jinja2",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "pydantic_settings",
        "starlette",
        "structlog",
        "uvicorn",
        "uvloop",
    ]
)
_MCP_PACKAGES = frozenset(["mcp", "mcp_types"])


class Commands(OnDemandGroup):
    """The root group, which turns the error of a command into a message and an exit code."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.name == "install_completion":
                param.help = "Install tab completion for your shell."
            # Only needed to install completion by hand, which the reference describes.
            param.hidden = param.hidden or param.name == "show_completion"
        return params

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LakelogError as error:
            _show(error.detail, _advice(error))
            raise typer.Exit(_code(error)) from _reraised(error)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            extra = "mcp" if package in _MCP_PACKAGES else "server"
            if package not in _SERVER_PACKAGES | _MCP_PACKAGES:
                raise
            _show(f"This command needs {error.name}.", f"Install the {extra} extra: pip install 'lakelog[{extra}]'")
            raise typer.Exit(FAILED) from _reraised(error)
        except BrokenPipeError:
            # The reader of the pipe is gone. Without this, the interpreter would report it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(OK) from None


def debugging() -> bool:
    return os.environ.get("LAKELOG_DEBUG", "") not in ("", "0")


def _reraised(error: Exception) -> Exception:
    if debugging():
        raise error
    return error


def _code(error: LakelogError) -> int:
    if isinstance(error, NotFound):
        return NOT_FOUND
    if isinstance(error, Unavailable | Overloaded | OutcomeUnknown):
        return UNREACHABLE
    return FAILED


def _advice(error: LakelogError) -> str | None:
    from lakelog.cli import target

    if isinstance(error, TopicExists):
        return "Choose another name, or use --if-missing to accept the existing topic."
    where = target.last_used()
    if where is None:
        return None
    if isinstance(error, NotAuthenticated) and not where.token:
        return "Create a token with `lakelog tokens create` and pass it with --token."
    if not isinstance(error, Unavailable | OutcomeUnknown):
        return None
    unreachable = error.subject.get("unreachable")
    if unreachable == "server":
        return "Start a server with `lakelog dev` or `lakelog serve`, or give --url."
    if not where.is_http:
        return f"Start PostgreSQL, or check the URL {where.place}."
    if unreachable == "database":
        return "The server is running, but it cannot reach its database. Retry later, or look at the server's log."
    return "The server is running. Retry later, or look at its log."


def _show(what: str, advice: str | None) -> None:
    from lakelog.cli.output import clean, say

    first, *rest = [line for text in (what, advice) if text for line in text.splitlines()]
    say(f"lakelog: {clean(first)}")
    for line in rest:
        say(f"         {clean(line)}")
