"""Iceberg tables in the catalog: one of two commits wins, and a file is known while a snapshot has it."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from lakelog.model.iceberg import IcebergCommit, TableKind
from lakelog.model.topic import Topic, TopicSettings
from lakelog.storage.store import Catalog
from tests.contract.stores import Backing
from tests.contract.test_catalog import new_scope


async def new_topic(catalog: Catalog, name: str = "orders") -> Topic:
    return await catalog.topic_create(await new_scope(catalog), name, TopicSettings(), [0])


def commit(topic: Topic, version: int, *added: str, removed: tuple[str, ...] = (), oldest: int = 0) -> IcebergCommit:
    folder = f"e{topic.scope.environment_id}/t{topic.incarnation}"
    metadata = f"{folder}/metadata/{version}.metadata.json"
    return IcebergCommit(
        topic=topic.name,
        incarnation=topic.incarnation,
        version=version,
        metadata=metadata,
        added=[*(f"{folder}/{name}" for name in added), metadata],
        removed=[f"{folder}/{name}" for name in removed],
        oldest=oldest,
    )


async def known(catalog: Catalog, topic: Topic, *names: str) -> set[str]:
    folder = f"e{topic.scope.environment_id}/t{topic.incarnation}/"
    found = await catalog.iceberg.table_paths_known([folder + name for name in names])
    return {path.removeprefix(folder) for path in found}


async def test_one_of_many_concurrent_commits_wins_and_no_other_leaves_a_trace(backing: Backing) -> None:
    async with backing.catalog_pair() as pair:
        topic = await new_topic(pair[0])
        for version in range(5):
            rivals = [
                replace(
                    commit(topic, version),
                    metadata=f"e1/{topic.incarnation}/{version}-{n}.json",
                    added=[f"e1/{topic.incarnation}/{version}-{n}.parquet"],
                )
                for n in range(4)
            ]
            won = await asyncio.gather(*(pair[n % 2].iceberg.table_commit(each) for n, each in enumerate(rivals)))
            assert won.count(True) == 1
            table = await pair[1].iceberg.table_read(topic.incarnation)
            assert table is not None
            assert (table.version, table.metadata) == (version + 1, rivals[won.index(True)].metadata)
            assert len(table.segments) == version + 1
            assert rivals[won.index(True)].added[0] in table.segments
            # The response was lost: a repeat learns that the commit stands.
            assert await pair[0].iceberg.table_commit(rivals[won.index(True)])
            assert not await pair[0].iceberg.table_commit(rivals[won.index(False)])


async def test_a_removed_file_is_known_until_no_kept_version_has_it(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        assert await one.iceberg.table_commit(commit(topic, 0, "a.parquet", "b.parquet", oldest=1))
        assert await one.iceberg.table_commit(commit(topic, 1, removed=("a.parquet",), oldest=1))
        table = await other.iceberg.table_read(topic.incarnation)
        assert table is not None and {path.rpartition("/")[2] for path in table.segments} == {"b.parquet"}
        assert await known(other, topic, "a.parquet", "b.parquet", "c.parquet") == {"a.parquet", "b.parquet"}
        assert await one.iceberg.table_commit(commit(topic, 2, oldest=2))
        assert await known(other, topic, "a.parquet") == {"a.parquet"}
        assert await one.iceberg.table_commit(commit(topic, 3, oldest=3))
        assert await known(other, topic, "a.parquet", "b.parquet") == {"b.parquet"}


async def test_a_topic_has_two_tables_with_versions_of_their_own(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await new_topic(one)
        assert await one.iceberg.table_commit(commit(topic, 0, "a.parquet"))
        assert await one.iceberg.table_commit(commit(topic, 1, "b.parquet", oldest=2))
        keys = replace(commit(topic, 0, "k.parquet"), kind=TableKind.LATEST, metadata="k0.json")
        keys = replace(keys, added=[*keys.added[:1], "k0.json"])
        assert await other.iceberg.table_commit(keys)
        found = await other.iceberg.table_list(topic.scope)
        assert [(each.name, each.version) for each in found] == [("orders", 2), ("orders__latest", 1)]
        tables = [await one.iceberg.table_read(topic.incarnation, kind) for kind in TableKind]
        assert [each and {path.rpartition("/")[2] for path in each.segments} for each in tables] == [
            {"a.parquet", "b.parquet"},
            {"k.parquet"},
        ]
        newer = replace(keys, version=1, metadata="k1.json", added=["k1.json"], removed=keys.added, oldest=2)
        assert await one.iceberg.table_commit(newer)
        assert await one.iceberg.table_commit(
            replace(newer, version=2, metadata="k2.json", added=["k2.json"], oldest=3)
        )
        assert await known(other, topic, "a.parquet", "k.parquet") == {"a.parquet"}


async def test_tables_are_listed_by_environment_and_end_with_their_topic(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic, foreign = await new_topic(one, "b"), await new_topic(one, "b")
        first = await one.topic_create(topic.scope, "a", TopicSettings(), [0])
        for each in (topic, first, foreign):
            assert await one.iceberg.table_commit(commit(each, 0, "x.parquet"))
        await one.topic_create(topic.scope, "without", TopicSettings(), [0])
        assert [each.topic for each in await other.iceberg.table_list(topic.scope)] == ["a", "b"]
        assert [each.topic for each in await other.iceberg.table_list(topic.scope, topic="b")] == ["b"]
        assert await other.iceberg.table_list(topic.scope, topic="without") == []
        await one.topic_delete(topic)
        assert [each.topic for each in await other.iceberg.table_list(topic.scope)] == ["a"]
        assert not await one.iceberg.table_commit(commit(topic, 1))
        assert await known(one, topic, "x.parquet") == {"x.parquet"}, "its heads may still be open"
        await one.topic_forget(topic)
        assert await known(one, topic, "x.parquet") == set()
        assert await known(one, foreign, "x.parquet") == {"x.parquet"}
