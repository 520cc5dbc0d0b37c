"""The warning for a program that subscribes handlers and ends without running them.

Only subscriptions that the main program makes count. A module that is imported may be run by `lakelog worker`, tested,
or used to publish, so its handlers need not run.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lakelog.client.worker.options import Subscription


def main_program() -> str | None:
    """Return the module name of the program that called Lakelog; "" if it cannot be imported from this folder.

    Return None if the caller is not the main program, or is an interactive session.
    """
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("lakelog."):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__") != "__main__" or hasattr(sys, "ps1"):
        return None
    return _importable(frame.f_globals)


def warning(module: str, pool: object, subscriptions: Sequence[Subscription]) -> str | None:
    """Return the sentence that names the handlers and says how to run them; None if an exception ends the program."""
    if getattr(sys, "last_type", None) is not None:
        return None
    named = ", ".join(f"{each.handler.name} (topic '{each.topic}', group '{each.group}')" for each in subscriptions)
    program = vars(sys.modules["__main__"])
    clients = [(name, found) for name, found in program.items() if getattr(found, "_pool", None) is pool]
    name, client = clients[0] if clients else ("log", None)
    is_async = inspect.iscoroutinefunction(getattr(client, "run", None))
    run = f"asyncio.run({name}.run())" if is_async else f"{name}.run()"
    command = f", or start it with `lakelog worker {module}:{name}`" if module and clients else ""
    return f"The program ended without running its handlers: {named}. Call `{run}` at its end{command}."


def _importable(program: Mapping[str, Any]) -> str:
    if program.get("__spec__") is not None:
        return str(program["__spec__"].name)
    path = Path(os.path.relpath(program.get("__file__") or ".."))
    return "" if path.suffix != ".py" or ".." in path.parts else ".".join(path.with_suffix("").parts)
