"""A program that publishes in its own transactions, with one of the database libraries, until it is killed.

Each transaction also inserts a row into the table `done` of the application, which is the truth about what was
committed. `outbox_writer.py LIBRARY APP_URL SERVER_URL WRITER TRANSACTIONS`
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lakelog

CONNECTIONS = 4
INSERT = "insert into done (key, number) values ('{key}', {number})"
KEPT_SHARE = 0.7

Run = Callable[[str, int, bool], None]
"""Runs one transaction: key, number, and whether it is committed."""


class _RolledBack(Exception):
    pass


@contextmanager
def _psycopg(topic: Any, url: str, isolation: str) -> Iterator[Run]:
    import psycopg

    with psycopg.connect(url, options=f"-c default_transaction_isolation={isolation}") as connection:

        def run(key: str, number: int, keeps: bool) -> None:
            connection.execute(INSERT.format(key=key, number=number))
            topic.publish({"number": number}, key=key, transaction=connection)
            connection.commit() if keeps else connection.rollback()

        yield run


@contextmanager
def _sqlalchemy(topic: Any, url: str, isolation: str) -> Iterator[Run]:
    import sqlalchemy
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"), isolation_level=isolation.upper().replace("\\", "")
    )

    def run(key: str, number: int, keeps: bool) -> None:
        with Session(engine) as session:
            session.execute(sqlalchemy.text(INSERT.format(key=key, number=number)))
            topic.publish({"number": number}, key=key, transaction=session)
            session.commit() if keeps else session.rollback()

    try:
        yield run
    finally:
        engine.dispose()


@contextmanager
def _django(topic: Any, url: str, isolation: str) -> Iterator[Run]:
    from django.db import connection, transaction  # type: ignore[import-untyped]

    def run(key: str, number: int, keeps: bool) -> None:
        try:
            with transaction.atomic():
                with connection.cursor() as cursor:
                    cursor.execute(INSERT.format(key=key, number=number))
                topic.publish({"number": number}, key=key, transaction=connection)
                if not keeps:
                    raise _RolledBack
        except _RolledBack:
            pass

    try:
        yield run
    finally:
        connection.close()


LIBRARIES = {"psycopg": _psycopg, "sqlalchemy": _sqlalchemy, "django": _django}
ISOLATIONS = ("read\\ committed", "repeatable\\ read")


def _configure_django(url: str) -> None:
    from django.conf import settings  # type: ignore[import-untyped]
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(url)
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    default = {name: parts.get(part) or "" for name, part in names.items()}
    settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **default}})


def _write(library: str, url: str, server: str, writer: str, count: int, place: int) -> None:
    chance, number, key = random.Random(f"{writer}-{place}"), 0, f"{writer}-{place}"
    with lakelog.connect(server) as log:
        topic = log.topic("orders")
        while number < count:
            try:
                with LIBRARIES[library](topic, url, ISOLATIONS[place % 2]) as run:
                    while number < count:
                        number += 1
                        run(key, number, chance.random() < KEPT_SHARE)
            except Exception:  # The database is down, or a commit has an unknown outcome: the table has the truth.
                time.sleep(0.1)


async def _write_async(url: str, server: str, writer: str, count: int, place: int) -> None:
    import asyncpg

    chance, number, key = random.Random(f"{writer}-{place}"), 0, f"{writer}-{place}"
    isolation: Any = ("read_committed", "repeatable_read")[place % 2]
    async with lakelog.connect_async(server) as log:
        topic = log.topic("orders")
        while number < count:
            try:
                connection = await asyncpg.connect(url)
                while number < count:
                    number += 1
                    transaction = connection.transaction(isolation=isolation)
                    await transaction.start()
                    await connection.execute(INSERT.format(key=key, number=number))
                    await topic.publish({"number": number}, key=key, transaction=connection)
                    if chance.random() < KEPT_SHARE:
                        await transaction.commit()
                    else:
                        await transaction.rollback()
            except Exception:
                await asyncio.sleep(0.1)


async def _all_async(url: str, server: str, writer: str, count: int) -> None:
    await asyncio.gather(*(_write_async(url, server, writer, count, place) for place in range(CONNECTIONS)))


def main(library: str, url: str, server: str, writer: str, transactions: str) -> None:
    count = int(transactions) // CONNECTIONS
    if library == "asyncpg":
        asyncio.run(_all_async(url, server, writer, count))
        return
    if library == "django":
        _configure_django(url)
    threads = [
        threading.Thread(target=_write, args=(library, url, server, writer, count, place))
        for place in range(CONNECTIONS)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
