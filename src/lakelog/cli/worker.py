"""`lakelog worker`: runs the subscriptions of an application's client until SIGTERM or Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from lakelog.errors import ConfigurationError, InvalidRequest


def worker(
    target: Annotated[str, typer.Argument(help="The client as module:name, such as shop.app:log.")],
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds that running handlers may take to finish after SIGTERM or Ctrl-C.")
    ] = 25.0,
) -> None:
    """Run the handlers that a module has subscribed.

    The module is imported from the current folder. SIGTERM or Ctrl-C lets running handlers finish, for at most
    25 seconds (--drain). Send it again to exit immediately.
    """
    import asyncio

    # The import is included, because the client logs its server then.
    with _logging_to_stderr():
        log = find_client(target)
        if not log.subscriptions:
            raise InvalidRequest(f"{target} has no subscriptions: decorate a handler with @topic.subscribe(group=…).")
        done = log.run(drain=drain)
        if asyncio.iscoroutine(done):
            asyncio.run(done)


def find_client(target: str) -> Any:
    """Return the client at `module:name`; raise an error that says what is missing."""
    from importlib import import_module

    from lakelog import AsyncLakelog, Lakelog

    module_name, mark, name = target.partition(":")
    if not mark or not module_name or not name:
        raise InvalidRequest(f"{target!r} is not of the form module:name, such as shop.app:log.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # The module exists, but one of its imports does not.
            raise ConfigurationError(f"{module_name} cannot be imported: {error}.") from error
        raise InvalidRequest(
            f"Module {error.name!r} was not found in {folder} or among the installed packages."
        ) from error
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise InvalidRequest(f"{module_name} has no {name!r}. Give the name of the variable that holds the client.")
    if not isinstance(found, Lakelog | AsyncLakelog):
        raise InvalidRequest(f"{target} is a {type(found).__name__}, not a client made by `lakelog.connect`.")
    return found


@contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """Print the client's log lines: the server, starts and stops, dead letters, and outages."""
    import logging

    handler = logging.StreamHandler(sys.stderr)
    # A terminal needs no date, and lines are long.
    times = "%H:%M:%S" if sys.stderr.isatty() else None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", times))
    log = logging.getLogger("lakelog")
    level = log.level
    log.addHandler(handler)
    log.setLevel(level or logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = True
