"""The console before a large installation: the time of each page, and of searches for messages.

Full size: 1,000 topics, one of 20 million messages of which half are in files, and one of 10,000 partitions; 500 groups
of 4 partitions with samples of 30 days, one with 300,000 dead letters in 300 clusters. docs/console.md has the figures.
Run it on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import urlencode

import asyncpg
import psutil
import pyarrow as pa
import pytest

import lakelog
from benchmarks.corpus import DISTINCT, Corpus, corpus
from lakelog import Lakelog
from lakelog.model.lease import ConsumeRequest, LeaseAnswer, Verb
from lakelog.storage.postgres import open_cells
from tests.kit.cold import tier_by_hand
from tests.kit.console_bulk import copy_dead_letters, write_samples
from tests.kit.console_session import ConsoleSession, words
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.size import Size
from tests.unit.console.examples import PATHS

pytestmark = pytest.mark.nightly

PARTITIONS = 4
PAGE_MS = 300
"""The most that 95 of 100 views of a page may take."""
SLOW = {
    "overview", "groups by lag",  # They have figures of all groups.
    "dead_letters", "redrive",  # They count all dead letters of the group by cause.
    "wide topic",  # It has figures of 10,000 partitions.
}  # fmt: skip
"""Pages that take longer than that at full size, or about as long."""
OWNER = "host-12345-ab12cd34"


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much the installation has."""

    topics: int
    groups: int
    partitions: int
    messages: int
    dead_letters: int
    clusters: int
    days: tuple[int, int, int]
    views: int


CI = Amounts(
    topics=20, groups=10, partitions=100, messages=4_000, dead_letters=600, clusters=30, days=(1, 1, 1), views=2
)
FULL = Amounts(
    topics=1000,
    groups=500,
    partitions=10_000,
    messages=20_000_000,
    dead_letters=300_000,
    clusters=300,
    days=(2, 30, 30),
    views=20,
)


@dataclass(frozen=True, kw_only=True)
class Large:
    """The installation, its amounts, and the time at which its hot messages begin."""

    session: ConsoleSession
    server: psutil.Process
    amounts: Amounts
    corpus: Corpus
    hot_since: datetime


@pytest.fixture(scope="module")
def large(size: Size, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    amounts = size.pick(ci=CI, full=FULL)
    made = corpus(size.pick(ci=1000, full=DISTINCT))
    env = {"LAKELOG_CONSOLE": "true", "LAKELOG_OBJECT_STORE": f"file://{tmp_path_factory.mktemp('lake')}"}
    settings = size.pick(ci={}, full={"shared_buffers": "512MB", "max_wal_size": "8GB"})
    with (
        Cluster(settings=settings) as cluster,
        Fleet(cluster, servers=1, authenticate=True, env=env) as fleet,
        lakelog.connect(url := f"http://127.0.0.1:{fleet.ports[0]}", token=fleet.token, timeout=120) as log,
        ConsoleSession(url, fleet.token or "") as session,
    ):
        began = time.perf_counter()
        hot_since = fill(log, fleet, amounts, made)
        print(f"\nfilled in {time.perf_counter() - began:.0f} s")
        yield Large(
            session=session,
            server=psutil.Process(fleet.servers[0].pid),
            amounts=amounts,
            corpus=made,
            hot_since=hot_since,
        )


def fill(log: Lakelog, fleet: Fleet, amounts: Amounts, made: Corpus) -> datetime:
    """Fill the installation, and return when its hot messages begin."""
    log.topic("orders").create(partitions=PARTITIONS)
    publish(log, made, amounts.messages // 2)
    tier_by_hand(log, "orders")
    asyncio.run(drop_hot(fleet.url))
    hot_since = datetime.now(UTC) + timedelta(milliseconds=1)
    publish(log, made, amounts.messages - amounts.messages // 2)
    log.topic("orders").publish("needle", key="needle")
    log.topic("wide").create(partitions=amounts.partitions)
    for first in range(0, amounts.partitions, 1000):
        numbers = range(first, min(amounts.partitions, first + 1000))
        log.topic("wide").publish_many(lakelog.Outgoing(number, partition=number) for number in numbers)
    for number in range(amounts.topics - 2):
        log.topic(f"t{number:04}").create(partitions=PARTITIONS if number < amounts.groups else 1)
    work(fleet, log, "billing", "orders")
    for number in range(amounts.groups - 1):
        log.topic(f"t{number:04}").publish_columns(made.table.slice(0, 200))
        work(fleet, log, f"g{number:04}", f"t{number:04}")
    asyncio.run(fill_group(fleet.url, amounts))
    for number in range(20):
        log.marks.create(f"deploy 1.{number}", group="billing")
    return hot_since


def publish(log: Lakelog, made: Corpus, count: int) -> None:
    table = made.table.append_column("content_type", pa.repeat("application/json", len(made)))
    for first in range(0, count, len(made)):
        log.topic("orders").publish_columns(table.slice(0, min(len(made), count - first)))


async def drop_hot(url: str) -> None:
    """Drop the hot tables whose messages are in files."""
    cells = await open_cells(url)
    try:
        for store in cells.values():
            await store.roll()
            assert await store.rolls_drop(grace=timedelta(0)) != []
    finally:
        for store in cells.values():
            await store.close()


def work(fleet: Fleet, log: Lakelog, group: str, topic: str) -> None:
    """Create a group with a member: some messages dead, some acked, some leased, and the others not read."""
    join = {"member_id": OWNER, "topics": [topic], "session_timeout_ms": 1_800_000, "start_from": "earliest"}
    fleet.request("POST", f"/v1/groups/{group}/join", join)
    wish = ConsumeRequest(topic=topic, group=group, owner=OWNER, max_messages=20, lease_ms=600_000)
    for verb in (Verb.FAIL, Verb.ACK, None):
        leases = log.group(group).consume(wish).leases
        if verb is not None:
            answers = [
                LeaseAnswer(verb=verb, partition=each.partition, token=each.token, offsets=tuple(each.offsets())[:1])
                for each in leases
            ]
            log.group(group).answer(topic, OWNER, answers)


async def fill_group(url: str, amounts: Amounts) -> None:
    admin = await asyncpg.connect(url)
    try:
        await copy_dead_letters(admin, "billing", amounts.dead_letters, amounts.clusters)
        await admin.execute(
            "insert into lakelog.sample_series (group_id, incarnation) select group_id, incarnation "
            "from lakelog.group_topic on conflict do nothing"
        )
        await write_samples(admin, int(time.time()) // 60, amounts.days)
        await admin.execute("analyze", timeout=600)
    finally:
        await admin.close()


def timed(view: Callable[[], str], views: int) -> tuple[str, list[float]]:
    """Return the last page, and how long each view took in milliseconds, in ascending order."""
    taken, page = [], ""
    for _ in range(views):
        began = time.perf_counter()
        page = view()
        taken.append((time.perf_counter() - began) * 1000)
    return page, sorted(taken)


def cpu(server: psutil.Process) -> float:
    """Return the CPU time that the server has used so far, in milliseconds."""
    used = server.cpu_times()
    return 1000 * (used.user + used.system)


@pytest.mark.timeout(3600)
def test_the_time_of_each_page(large: Large, size: Size) -> None:
    session, views = large.session, large.amounts.views
    (cluster, *_) = re.findall(r"dead\?cluster=([0-9a-f]{12})", session.get("groups/billing/dead"))
    paths = {
        **PATHS,
        "a month of a group": "groups/billing?span=30d",
        "groups by lag": "groups?sort=lag",
        "wide topic": "topics/wide",
        "cluster": f"groups/billing/dead?cluster={cluster}",
        "redrive of a cluster": f"groups/billing/redrive?cluster={cluster}&edit=set&field=total&value=17",
        "oldest messages": "topics/orders/messages?from=oldest",
    }
    late = {}
    for name, path in paths.items():
        used = cpu(large.server)
        page, taken = timed(lambda path=path: session.get(path), views)
        used = (cpu(large.server) - used) / views
        p95 = taken[math.ceil(0.95 * len(taken)) - 1]
        times = f"p50 {taken[len(taken) // 2]:.0f} ms, p95 {p95:.0f} ms, {used:.0f} ms of CPU time of the server"
        print(f"{name}: {times}, {len(page) / 1000:.0f} kB")
        if p95 > PAGE_MS and name not in SLOW:
            late[name] = round(p95)
    if size is Size.FULL:
        assert late == {}


SEARCH = "topics/orders/messages"


def progress(page: str) -> tuple[int, int, int]:
    """Return how many messages a search has scanned, of how many, and how many it found."""
    found = re.search(r"([\d,]+) of ([\d,]+) messages scanned, ([\d,]+) found", words(page))
    assert found is not None, words(page)[:2000]
    scanned, total, hits = (int(each.replace(",", "")) for each in found.groups())
    return scanned, total, hits


def links_on(page: str) -> str | None:
    """Return the path of the link that continues a search."""
    found = re.search(r'href="(?:\.\./)*([^"]+)">Continue</a>', page)
    return unescape(found[1]) if found else None


@pytest.mark.timeout(3600)
def test_a_search_finds_a_key_soon_and_stops_at_its_budget(large: Large, size: Size) -> None:
    session, half = large.session, large.amounts.messages // 2
    first = {}
    for name, since in (("cold", {}), ("hot", {"time": large.hot_since.isoformat()})):
        worst = 0.0
        for number in range(0, len(large.corpus), len(large.corpus) // 10):
            query = urlencode({"key": large.corpus.keys[number].decode(), **since})
            page, (taken,) = timed(lambda query=query: session.get(f"{SEARCH}?{query}"), 1)
            assert progress(page)[2] > 0
            worst = max(worst, taken)
        first[name] = worst
    print(f"first hit: {first} ms at most")
    # Only the last message has this key.
    begun, looks, path = time.perf_counter(), 0, f"{SEARCH}?key=needle"
    while (page := session.get(path)) and (following := links_on(page)):
        looks, path = looks + 1, following
    scanned, total, hits = progress(page)
    assert hits == 1 and scanned <= total
    print(f"the last of {total} messages of a partition: {time.perf_counter() - begun:.1f} s in {looks + 1} pages")
    query = urlencode({"where": "value.order_id = 'none'"})
    page, (taken,) = timed(lambda: session.get(f"{SEARCH}?{query}"), 1)
    scanned, total, hits = progress(page)
    print(f"a filter without hits: {scanned} of {total} messages in {taken:.0f} ms")
    assert (total, hits) == (2 * half + 1, 0)
    if size is Size.FULL:
        assert scanned < total and links_on(page) is not None, "stopped at its budget"
        assert max(taken, first["hot"]) <= 1000 and first["cold"] <= 5000
