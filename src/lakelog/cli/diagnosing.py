"""Measures an installation for `lakelog doctor`, and passes the values to the checks. The checks are in the engine."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from lakelog.cli.databases import find_object_store
from lakelog.engine import diagnosis
from lakelog.errors import LakelogError, Unavailable
from lakelog.model.diagnosis import DatabaseFacts, Expectations, Finding, RemedyKind, RemedyStep
from lakelog.model.levels import SUPPORTED

if TYPE_CHECKING:
    from lakelog.server import ServerSettings

_CATALOG = "catalog"
_SECONDS = 15.0
"""How long one database may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of an installation.

    Attributes:
        url: The database of the catalog.
        cells: The databases of the other cells, by name.
        outboxes: The databases of applications that have an outbox.
        object_store: The URL of the object store; None for the configured one.
    """

    url: str
    cells: Mapping[str, str]
    outboxes: Sequence[str]
    object_store: str | None


async def diagnose(parts: Parts, transaction_seconds: float, options: str) -> list[Finding]:
    """Return the findings about an installation.

    Args:
        parts: The databases and the object store.
        transaction_seconds: The age from which an open transaction is reported.
        options: The options that name the databases in the commands of remedies.
    """
    url, cells = parts.url, parts.cells
    settings = _settings(url, cells, parts.object_store)
    expected = _expectations(settings, transaction_seconds, options)
    urls = {"": url, **cells}
    measured = await asyncio.gather(*(_measure(each) for each in urls.values()))
    findings: list[Finding] = []
    facts: dict[str, DatabaseFacts] = {}
    for name, found in zip(urls, measured, strict=True):
        where = f"cell {name}" if name else _CATALOG
        if isinstance(found, DatabaseFacts):
            facts[name] = found
            findings += [diagnosis.reachable(where), *diagnosis.check_database(found, expected, where)]
        else:
            findings.append(diagnosis.unreachable(where, found))
    # Without the option, the outboxes that a server with these settings relays.
    for outbox in parts.outboxes or settings.outbox_urls:
        findings += await _diagnose_outbox(outbox, expected)
    findings.append(diagnosis.check_cells(facts, cells, options))
    findings.append(await asyncio.to_thread(_probe, settings.object_store))
    return findings


async def _diagnose_outbox(url: str, expected: Expectations) -> list[Finding]:
    from lakelog.storage.postgres.address import address_of

    where = f"outbox {address_of(url)}"
    found = await _measure(url)
    if not isinstance(found, DatabaseFacts):
        return [diagnosis.unreachable(where, found)]
    return [diagnosis.reachable(where), *diagnosis.check_outbox_database(found, expected, where)]


def diagnose_server(url: str) -> list[Finding]:
    """Return the findings that a server can tell about itself."""
    import json
    from http.client import HTTPException
    from importlib.metadata import version
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    if not url.startswith(("http://", "https://")):
        raise Unavailable("The URL of a server must begin with http:// or https://.")
    try:
        with urlopen(f"{url.rstrip('/')}/readyz", timeout=_SECONDS) as response:
            code, content = response.status, response.read()
    except HTTPError as error:
        with error:
            code, content = error.code, error.read()
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise Unavailable(f"{url} cannot be reached: {error}. Check the URL, or start the server.") from error
    try:
        body = json.loads(content)
        told = str(body["status"]), bool(body["durable"]), tuple(body["warnings"])
        server = str(body["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unavailable(
            f"{url} returned {code}, but the response is not from Lakelog. Check the URL, or start the server."
        ) from error
    return diagnosis.check_server(*told, (server, version("lakelog")))


def _settings(url: str, cells: Mapping[str, str], object_store: str | None) -> ServerSettings:
    """Return the settings that `lakelog serve` would use here."""
    from lakelog.cli.serve import make_settings

    return make_settings(
        {"database_url": url, "cells": dict(cells), "object_store": find_object_store(object_store, url)}
    )


def _expectations(settings: ServerSettings, transaction_seconds: float, options: str) -> Expectations:
    from lakelog.storage.postgres.diagnosis import NEEDED_LOCK_SLOTS, newest_migration

    return Expectations(
        lock_slots=NEEDED_LOCK_SLOTS,
        connections=settings.database_connections * settings.workers,
        transaction_seconds=transaction_seconds,
        migration=newest_migration(),
        level=int(SUPPORTED),
        options=options,
    )


async def _measure(url: str) -> DatabaseFacts | str:
    """Return the values of a database, or why it cannot be reached."""
    from lakelog.storage.postgres.diagnosis import measure_database

    try:
        async with asyncio.timeout(_SECONDS):
            return await measure_database(url)
    except LakelogError as error:
        return error.detail
    except TimeoutError:
        return f"The database did not respond within {_SECONDS:g} s."


def _probe(url: str | None) -> Finding:
    """Write, read and delete an object."""
    if not url:
        return diagnosis.check_object_store(None, None)
    from lakelog.objectstore import open_store

    path, content = f"lakelog-doctor/{uuid.uuid4().hex}", b"lakelog doctor"
    try:
        store = open_store(url)
        store.put(path, content)
        is_same = store.get(path) == content
        store.delete(path)
    except LakelogError as error:
        return diagnosis.check_object_store(url, error.detail, _remedy(url))
    return diagnosis.check_object_store(url, None if is_same else "the store returned other bytes than were written")


def _remedy(url: str) -> RemedyStep | None:
    """Return the command that makes the folder of a store usable, if the store is a folder."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    folder = Path(unquote(parts.path))
    quoted = shlex.quote(str(folder))
    if folder.exists() and not folder.is_dir():
        return RemedyStep(kind=RemedyKind.SHELL, text=f"mv {quoted} {quoted}.old && mkdir -p {quoted}")
    return RemedyStep(kind=RemedyKind.SHELL, text=f"mkdir -p {quoted} && chown $(id -u) {quoted}")
