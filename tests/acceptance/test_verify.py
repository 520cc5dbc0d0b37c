"""`lakelog verify` names each kind of damage in files and in PostgreSQL, and nothing in a sound installation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import lakelog
from lakelog.client.verifying.verification import verify_topics
from lakelog.errors import Unavailable
from lakelog.model.segment import Segment
from tests.acceptance.cli_kit import Cli
from tests.faults.test_tiering_kills import drop_all
from tests.kit.cold import tier_by_hand
from tests.kit.fleet import Fleet
from tests.kit.postgres import Cluster
from tests.kit.waiting import eventually

MESSAGES = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def fleet(cluster: Cluster, folder: Path) -> Iterator[Fleet]:
    with Fleet(cluster, servers=1, env={"LAKELOG_OBJECT_STORE": f"file://{folder}"}) as started:
        yield started


@pytest.fixture
def log(fleet: Fleet) -> Iterator[lakelog.Lakelog]:
    with lakelog.connect(f"http://127.0.0.1:{fleet.ports[0]}") as opened:
        yield opened
        for topic in opened.topics():
            opened.topic(topic.name).delete()


@pytest.fixture
def cli(fleet: Fleet, tmp_path: Path) -> Cli:
    return Cli(folder=tmp_path, env={"LAKELOG_URL": f"http://127.0.0.1:{fleet.ports[0]}"})


def publish(log: lakelog.Lakelog, topic: str, count: int = MESSAGES) -> None:
    handle = log.topic(topic)
    handle.create(partitions=1, if_missing=True)
    for first in range(0, count, 50):
        handle.publish_many([f"{n:064d}" for n in range(first, first + 50)])


def cold(log: lakelog.Lakelog, fleet: Fleet, topic: str) -> list[Segment]:
    """Publish messages, tier them as several segments, drop the hot tables, and publish more."""
    publish(log, topic)
    made = tier_by_hand(log, topic, segment_bytes=1_000)
    assert len(made) > 3
    asyncio.run(drop_all(fleet.url))
    publish(log, topic, 50)
    return made


def verify(cli: Cli, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = cli.run("verify", *arguments, "--json", code=None)
    return done.code, done.json


def execute(fleet: Fleet, statement: str, *values: object) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(fleet.url)
        try:
            await connection.execute(statement, *values)
        finally:
            await connection.close()

    asyncio.run(run())


def problems(fleet: Fleet, topic: str) -> set[tuple[str, int | None, int | None]]:
    """Return kinds and offsets. The client gives up after a second, and not after 30 like the command.

    On a busy machine, a second may be too short for any call: repeat it then.
    """
    with lakelog.connect(f"http://127.0.0.1:{fleet.ports[0]}", timeout=1) as log, contextlib.suppress(Unavailable):
        return {(each.kind.value, each.first, each.end) for each in verify_topics(log, [topic]).problems}
    return set()


def test_a_sound_topic_has_no_problem(log: lakelog.Lakelog, fleet: Fleet, cli: Cli) -> None:
    made = cold(log, fleet, "sound")
    code, done = verify(cli, "sound")
    assert (code, done["problems"]) == (0, [])
    assert (done["topics"], done["segments"], done["cold"], done["hot"]) == (1, len(made), MESSAGES, 50)
    assert done["planned"] == MESSAGES + 50
    code, done = verify(cli, "sound", "--sample", "30%")
    assert code == 0 and 0 < done["segments"] < len(made) and done["hot"] == 50
    line = cli.run("verify").out.strip()
    assert line.startswith(f"1 topic: read 400 messages in {len(made)} files (") and line.endswith("; no problem")


def test_damaged_missing_and_swapped_files_are_named(
    log: lakelog.Lakelog, fleet: Fleet, cli: Cli, folder: Path
) -> None:
    made = cold(log, fleet, "broken")
    flipped, missing, one, other = (folder / made[number].path for number in (0, 1, 2, 3))
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(bytes(data))
    missing.unlink()
    one.write_bytes(other.read_bytes())
    code, done = verify(cli, "broken")
    found = {each["path"]: each for each in done["problems"]}
    assert code == 1
    assert {path: each["kind"] for path, each in found.items()} == {
        made[0].path: "damaged",
        made[1].path: "missing",
        made[2].path: "swapped",
    }
    assert found[made[2].path]["detail"] == f"The file has the bytes of {made[3].path}."
    places = {(each["topic"], each["partition"], each["first"], each["end"]) for each in found.values()}
    assert places == {("broken", 0, each.first, each.end) for each in made[:3]}
    shown = cli.run("verify", "broken", code=1)
    assert "3 problems" in shown.out and f"{made[1].first}–{made[1].end - 1}" in shown.out


def test_a_gap_and_an_overlap_are_named(log: lakelog.Lakelog, fleet: Fleet) -> None:
    made = cold(log, fleet, "holed")
    execute(fleet, "delete from lakelog.segment where path = $1", made[1].path)
    eventually(lambda: problems(fleet, "holed") == {("gap", made[1].first, made[1].end)})
    execute(fleet, "update lakelog.segment set first_offset = first_offset - 1 where path = $1", made[3].path)
    eventually(lambda: ("overlap", made[3].first - 1, made[3].first) in problems(fleet, "holed"))


def test_an_undecodable_batch_is_named(log: lakelog.Lakelog, fleet: Fleet, cli: Cli) -> None:
    publish(log, "hot", 100)
    assert verify(cli, "hot")[0] == 0
    incarnation = log.topic("hot").describe().incarnation
    execute(
        fleet,
        f"""do $$ declare t text; begin
            for t in select 'hot_' || roll from lakelog.roll loop
                execute format('update lakelog.%I set payload = overlay(payload placing $1 from 9)
                                where pid >> 16 = $2 and end_offset = 100', t)
                using '\\xffffffffffffffffffffffff'::bytea, {incarnation}::bigint;
            end loop; end $$""",
    )
    code, done = verify(cli, "hot")
    assert code == 1
    assert [(each["kind"], each["first"], each["end"]) for each in done["problems"]] == [("damaged", 50, 100)]


def test_files_that_no_segment_uses_are_a_problem_when_they_are_old(
    log: lakelog.Lakelog, fleet: Fleet, cli: Cli, folder: Path
) -> None:
    (made, *_) = cold(log, fleet, "swept")
    orphan = folder / made.path.replace(made.path[-24:-8], "0123456789abcdef")
    orphan.write_bytes(b"left by a killed run")
    code, done = verify(cli)
    assert code == 0 and done["unused"] >= 1 and done["problems"] == []
    code, done = verify(cli, "--unused-age", "0s")
    assert code == 1
    path = str(orphan.relative_to(folder))
    assert [each["kind"] for each in done["problems"] if each["path"] == path] == ["orphan"]
