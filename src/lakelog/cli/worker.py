"""`lakelog worker`: runs the subscriptions of a program's client, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lakelog.errors import ConfigurationError, InvalidRequest


def worker(
    target: Annotated[str, typer.Argument(help="Where the client is: module:name, such as shop.app:log.")],
) -> None:
    """Run the handlers that a module has subscribed.

    The module is imported from the current folder. SIGTERM or Ctrl-C lets handlers finish, for at most 25 seconds;
    once more ends at once.
    """
    import asyncio

    log = find_client(target)
    if not log.subscriptions:
        raise InvalidRequest(f"{target} has no subscriptions: decorate a handler with @topic.subscribe(group=…).")
    _log_lines()
    done = log.run()
    if asyncio.iscoroutine(done):
        asyncio.run(done)


def find_client(target: str) -> Any:
    """The client that the target names; says what is missing."""
    from importlib import import_module

    from lakelog import AsyncLakelog, Lakelog

    module_name, mark, name = target.partition(":")
    if not mark or not module_name or not name:
        raise InvalidRequest(f"{target!r} does not say where the client is; write module:name, such as shop.app:log.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # The module is there, but wants another that is not.
            raise ConfigurationError(f"{module_name} cannot be imported: {error}.") from error
        raise InvalidRequest(f"There is no module {error.name!r} in {folder} or among those installed.") from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidRequest(f"{module_name} has no {name!r}; give the name of what `lakelog.connect` returned.")
    if not isinstance(found, Lakelog | AsyncLakelog):
        raise InvalidRequest(f"{target} is a {type(found).__name__}, not what `lakelog.connect` returned.")
    return found


def _log_lines() -> None:
    """One line to stderr for each start and stop, each dead letter, and whatever stands in the way."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("lakelog")
    log.addHandler(handler)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    log.propagate = False
