"""What every suite may ask for: the size, PostgreSQL clusters, fresh databases; and a runner for coroutine tests.

There are no async fixtures: a test enters what it needs by `async with`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.kit.postgres import Cluster
from tests.kit.size import Size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about the machine than about the code.
settings.register_profile("lakelog", deadline=None)
settings.load_profile("lakelog")


def pytest_addoption(parser: pytest.Parser) -> None:
    sizes = [size.value for size in Size]
    parser.addoption("--size", choices=sizes, default=Size.CI.value, help="size of scenarios: about a tenth, or whole")


def pytest_configure(config: pytest.Config) -> None:
    # At full size, there may be more data than memory.
    Cluster.prefers_memory = config.getoption("--size") == Size.CI.value


@pytest.fixture(scope="session")
def size(pytestconfig: pytest.Config) -> Size:
    return Size(pytestconfig.getoption("--size"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster that tests share. A test that kills or pauses it should rather start one of its own."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def second_cluster() -> Iterator[Cluster]:
    """Another cluster, with an identity of its own: a second cell."""
    with Cluster(own_identity=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """The local session of a module's tests. Gone at its end: a process has one at a time, whatever its settings."""
    from tests.kit.spark import local_session

    with local_session() as session:
        yield session


@pytest.fixture
def database(cluster: Cluster) -> Iterator[str]:
    """The superuser's URL of a fresh, empty database."""
    yield from _fresh_database(cluster)


@pytest.fixture
def second_database(second_cluster: Cluster) -> Iterator[str]:
    """The same on the second cluster."""
    yield from _fresh_database(second_cluster)


def _fresh_database(cluster: Cluster) -> Iterator[str]:
    cluster.ensure_running()
    url = cluster.create_database()
    yield url
    cluster.ensure_running()
    cluster.drop_database(url)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a coroutine test in a loop of its own."""
    limit = _limit(pyfuncitem)
    given = getattr(pyfuncitem.obj, "hypothesis", None)
    if given is not None and inspect.iscoroutinefunction(given.inner_test):
        given.inner_test = _in_a_loop(given.inner_test, limit)
        return None
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    _in_a_loop(pyfuncitem.obj, limit)(**arguments)
    return True


def _in_a_loop(test: Callable[..., Coroutine[Any, Any, None]], limit: float | None) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **kwargs: object) -> None:
        async def within_limit() -> None:
            async with asyncio.timeout(limit):
                await test(*args, **kwargs)

        asyncio.run(within_limit())

    return run


def _limit(item: pytest.Function) -> float | None:
    """Less than pytest-timeout's, so that the loop ends in order, and the report is written before that one fires."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        seconds = float(marker.args[0] if marker.args else marker.kwargs["timeout"])
    else:
        seconds = float(item.config.getoption("--timeout") or item.config.getini("timeout") or 0)
    return seconds - min(10.0, seconds / 2) if seconds else None
