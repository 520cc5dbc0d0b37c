"""The checks of an installation beyond one database: reachable databases, cells, the object store, a server."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from lakelog.engine.diagnosis.steps import failed, ok, shell, skipped, text, warning
from lakelog.model.diagnosis import DatabaseFacts, Finding, RemedyStep

OBJECT_STORE = "object store"


def reachable(where: str) -> Finding:
    """Return the finding for a database that responds."""
    return replace(ok("connection", "the database responds and accepts writes"), where=where)


def unreachable(where: str, reason: str) -> Finding:
    """Return the finding for a database that cannot be reached.

    Args:
        where: The name of the database.
        reason: The message of the error.
    """
    step = text("Start PostgreSQL, or correct the URL of the database.")
    return replace(failed("connection", reason, step), where=where)


def check_cells(facts: Mapping[str, DatabaseFacts], configured: Mapping[str, str], options: str) -> Finding:
    """Compare the configured cells with those of the catalog.

    Args:
        facts: The measured values of the reachable databases, by name; `""` is the catalog.
        configured: The URLs of the cells, by name.
        options: The options that name the databases in the commands of remedies.
    """
    return replace(_check_cells(facts, configured, options), where="installation")


def _check_cells(facts: Mapping[str, DatabaseFacts], configured: Mapping[str, str], options: str) -> Finding:
    catalog = facts.get("")
    if catalog is None or catalog.schema is None:
        return skipped("cells", "the catalog cannot be read")
    known = catalog.schema.cells
    if missing := sorted(configured.keys() - known.keys()):
        return failed("cells", f"not in the catalog: {', '.join(missing)}", shell(f"lakelog migrate{options}"))
    if left_out := sorted(known.keys() - configured.keys()):
        return failed(
            "cells",
            f"in the catalog, but not configured: {', '.join(left_out)}",
            text(f"Give the URL of cell {left_out[0]}: --cell {left_out[0]}=URL, or LAKELOG_CELLS."),
        )
    for name, found in facts.items():
        if name and found.schema is not None:
            identity = (found.schema.installation, found.schema.cell)
            if identity != (catalog.schema.installation, known[name]):
                return failed(
                    "cells",
                    f"the database of cell {name} belongs to another cell or installation",
                    text(f"Correct the URL of cell {name}."),
                )
    return ok("cells", f"{len(known) + 1} configured, as in the catalog")


def check_object_store(url: str | None, failure: str | None, remedy: RemedyStep | None = None) -> Finding:
    """Return the finding about the object store.

    Args:
        url: The URL of the store; None if none is configured.
        failure: The reason why a probe could not be written, read and deleted; None if it could.
        remedy: The step that clears the failure, if it is known.
    """
    if url is None:
        return replace(skipped(OBJECT_STORE, "not configured (LAKELOG_OBJECT_STORE)"), where="installation")
    if failure is None:
        found = ok(OBJECT_STORE, f"a probe was written, read and deleted in {url}")
    else:
        step = remedy or text("Check the URL, the endpoint, the credentials and the rights of the object store.")
        found = failed(OBJECT_STORE, failure, step)
    return replace(found, where="installation")


def check_server(status: str, durable: bool, warnings: tuple[str, ...], versions: tuple[str, str]) -> list[Finding]:
    """Return the findings that a server can tell about itself.

    Args:
        status: The status of `/readyz`.
        durable: Whether its databases are durable.
        warnings: The warnings of `/readyz`.
        versions: The version of the server and the version of this package.
    """
    server, package = versions
    said = "; ".join(warnings)
    ready = ok("ready", status)
    if status not in ("ready", "ok"):
        ready = failed("ready", f"{status}: {said}", text("Run `lakelog doctor` with the URL of the database."))
    durability = ok("durability", "the server found no setting that can lose messages in a crash")
    if not durable:
        step = text("Run `lakelog doctor` with the URL of the database, which names the settings.")
        durability = failed("durability", said, step)
    elif said:
        step = text("Add a synchronous standby, and see the log of the server.")
        durability = warning("durability", said, step)
    version = ok("versions", f"server and package {package}")
    if server != package:
        step = text("Install the same version on both.")
        version = warning("versions", f"server {server}, package {package}", step)
    needs_database = skipped("databases", "checks of PostgreSQL and of the object store need --database-url")
    return [replace(each, where="server") for each in (ready, durability, version, needs_database)]
