"""The catalog: isolated scopes, topics and their incarnations, tokens."""

from __future__ import annotations

import asyncio
import os
import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from lakelog.errors import Conflict, TopicExists, TopicNotFound
from lakelog.model.kinds import Compatibility
from lakelog.model.schema import SchemaSetting
from lakelog.model.token import Right, Token, hash_secret, new_secret
from lakelog.model.topic import Retention, Scope, Topic, TopicSettings
from lakelog.storage.memory import utcnow
from lakelog.storage.store import Catalog
from tests.contract.stores import Backing

SETTINGS = TopicSettings()
FULL_SETTINGS = TopicSettings(
    retention=Retention(max_age=timedelta(days=3, milliseconds=7), max_count=10, max_bytes=1 << 40),
    key_field="account.id",
    idempotency_memory=timedelta(minutes=90),
    tags=("billing", "eu-west", "ä\"'\\"),
    metadata={"owner": "billing@example.org", "note": "line\nbreak"},
)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


async def new_scope(catalog: Catalog) -> Scope:
    return await catalog.scope_create(unique("project"), "dev")


def new_token(**changes: object) -> Token:
    values: dict[str, object] = {
        "id": uuid.uuid4().hex,
        "name": "ci",
        "rights": (Right.READ, Right.PUBLISH),
        "created_at": utcnow(),
        "expires_at": None,
    }
    return Token(**{**values, **changes})  # type: ignore[arg-type]


def names(topics: list[Topic]) -> list[str]:
    return [topic.name for topic in topics]


async def test_versions_of_a_schema_are_written_with_the_topic(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        first = replace(SETTINGS, schema=SchemaSetting(version=1))
        topic = await one.topic_create(scope, "orders", first, [0], '{"type":"object"}')
        assert await other.topic_find(scope, "orders") == topic
        record = await other.schema_find(topic.incarnation, 1)
        assert record is not None and record.text == '{"type":"object"}'
        second = replace(SETTINGS, schema=SchemaSetting(version=2, compatibility=Compatibility.FULL))
        altered = await other.topic_alter(topic, second, (), "true")
        assert (await one.topic_find(scope, "orders")) == altered
        with pytest.raises(Conflict):
            await one.topic_alter(topic, replace(SETTINGS, schema=SchemaSetting(version=3)), (), "false")
        assert await one.schema_find(topic.incarnation, 3) is None
        assert [each.version for each in await one.schema_versions(topic.incarnation)] == [1, 2]
        assert [each.version for each in await one.schema_versions(topic.incarnation, limit=1)] == [2]
        with pytest.raises(TopicExists):
            await one.topic_create(scope, "orders", first, [0], "false")
        await one.topic_alter(altered, SETTINGS, ())
        assert [each.version for each in await other.schema_versions(topic.incarnation)] == [1, 2]
        await one.topic_delete(topic)
        await one.topic_forget(topic)
        assert await other.schema_versions(topic.incarnation) == []


async def test_a_scope_is_made_once(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        project = unique("project")
        assert await one.scope_find(project, "dev") is None
        made = await asyncio.gather(*(catalog.scope_create(project, "dev") for catalog in (one, other) * 4))
        assert set(made) == {made[0]}
        assert await other.scope_find(project, "dev") == made[0]
        assert (made[0].project, made[0].environment) == (project, "dev")


async def test_environments_of_a_project_and_of_others_are_apart(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        first, second = unique("project"), unique("project")
        places = [(first, "dev"), (first, "live"), (second, "dev"), (second, "live")]
        scopes = [await one.scope_create(*place) for place in places]
        assert len({scope.environment_id for scope in scopes}) == 4
        assert [await one.scope_find(*place) for place in places] == scopes
        assert await one.scope_find(first, "test") is None


async def test_a_topic_is_read_back_as_it_was_created(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        topic = await one.topic_create(scope, "orders", FULL_SETTINGS, [0, 1, 0])
        assert (topic.scope, topic.name, topic.cells, topic.settings) == (scope, "orders", (0, 1, 0), FULL_SETTINGS)
        assert topic.created_at.utcoffset() is not None
        assert set(topic.slot_cells) <= {0, 1}
        assert topic.slot_cell(os.urandom(32)) in {0, 1}
        assert await other.topic_find(scope, "orders") == topic
        assert await other.topic_find(scope, "others") is None


async def test_a_name_is_used_once(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        tries = [catalog.topic_create(scope, "orders", SETTINGS, [0]) for catalog in (one, other) * 4]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        (won,) = [answer for answer in answers if isinstance(answer, Topic)]
        assert sum(isinstance(answer, TopicExists) for answer in answers) == 7
        assert await one.topic_find(scope, "orders") == won
        with pytest.raises(TopicExists):
            await one.topic_create(scope, "orders", FULL_SETTINGS, [0, 0])
        assert await one.topic_find(scope, "orders") == won


async def test_same_names_in_two_environments_never_meet(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        project = unique("project")
        dev, live = await one.scope_create(project, "dev"), await one.scope_create(project, "live")
        first = await one.topic_create(dev, "orders", SETTINGS, [0])
        assert await one.topic_find(live, "orders") is None
        assert await one.topic_list(live) == []
        second = await one.topic_create(live, "orders", FULL_SETTINGS, [0, 0])
        assert first.incarnation != second.incarnation
        await one.topic_alter(second, SETTINGS, [0])
        assert await one.topic_find(dev, "orders") == first
        assert await one.topic_delete(second)
        assert await one.topic_find(dev, "orders") == first
        assert await one.topic_list(dev) == [first]


async def test_topics_are_listed_by_name_in_pages(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope, elsewhere = await new_scope(one), await new_scope(one)
        # Punctuation and digits, so that any order other than byte order would show.
        wanted = ["b.a", "a_c", "a", "a-b", "ab", "a.b", "a0", "-z"]
        for name in wanted:
            await one.topic_create(scope, name, SETTINGS, [0])
        await one.topic_create(elsewhere, "aa", SETTINGS, [0])
        assert names(await one.topic_list(scope)) == sorted(wanted)
        pages: list[str] = []
        while page := await one.topic_list(scope, after=pages[-1] if pages else "", limit=3):
            assert len(page) <= 3
            pages += names(page)
        assert pages == sorted(wanted)
        assert names(await one.topic_list(scope, after="a.a", limit=1)) == ["a.b"]


async def test_all_open_topics_are_listed_over_scopes(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scopes = [await new_scope(one), await new_scope(one)]
        topics = [await one.topic_create(scope, "orders", FULL_SETTINGS, [0]) for scope in scopes]
        gone = await one.topic_create(scopes[0], "gone", SETTINGS, [0])
        await one.topic_delete(gone)
        found = {topic.incarnation: topic for topic in await other.topic_list_all()}
        assert [found[topic.incarnation] for topic in topics] == topics
        assert gone.incarnation not in found


async def test_incarnations_can_be_left_out(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        first = await one.topic_create(scope, "first", SETTINGS, [0])
        assert await other.topic_newest() >= first.incarnation
        await one.topic_skip(await other.topic_newest() + 5)
        newest = await other.topic_newest()
        await one.topic_skip(newest - 5)
        assert await one.topic_newest() == newest
        second = await other.topic_create(scope, "second", SETTINGS, [0])
        assert second.incarnation > newest >= first.incarnation + 5


async def test_topics_are_named_by_their_incarnations_also_after_their_end(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        first, second, third = [await one.topic_create(scope, name, SETTINGS, [0]) for name in ("a", "b", "c")]
        for topic in (first, second):
            assert await one.topic_delete(topic)
        await one.topic_forget(first)
        found = await other.topic_list_some([each.incarnation for each in (first, second, third)])
        assert {(each.incarnation, each.name, each.scope) for each in found} == {
            (each.incarnation, each.name, scope) for each in (first, second, third)
        }
        assert await other.topic_list_some([third.incarnation + 1000]) == []


async def test_new_settings_leave_the_epoch(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0, 1])
        altered = await one.topic_alter(topic, FULL_SETTINGS, [])
        assert altered.settings == FULL_SETTINGS
        assert (altered.incarnation, altered.epoch, altered.cells) == (topic.incarnation, topic.epoch, (0, 1))
        assert await other.topic_find(topic.scope, "orders") == altered
        assert (await other.topic_alter(altered, SETTINGS, [])).settings == SETTINGS


async def test_added_partitions_raise_the_epoch_and_move_no_idempotency_key(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0, 1])
        altered = await one.topic_alter(topic, SETTINGS, [2, 0])
        assert (altered.cells, altered.epoch) == ((0, 1, 2, 0), topic.epoch + 1)
        assert altered.slot_cells == topic.slot_cells
        assert await other.topic_find(topic.scope, "orders") == altered


async def test_a_change_against_a_stale_version_is_refused(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0])
        altered = await one.topic_alter(topic, SETTINGS, [0])
        for cells in ([], [0]):
            with pytest.raises(Conflict):
                await other.topic_alter(topic, FULL_SETTINGS, cells)
        assert await one.topic_find(topic.scope, "orders") == altered


async def test_settings_changed_twice_at_once_lose_no_change(backing: Backing) -> None:
    """The second caller computed its settings from those before the first change."""
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0])
        altered = await one.topic_alter(topic, FULL_SETTINGS, [])
        for cells in ([], [0]):
            with pytest.raises(Conflict):
                await other.topic_alter(topic, SETTINGS, cells)
        assert await other.topic_find(topic.scope, "orders") == altered


async def test_partitions_added_twice_at_once_are_added_once(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0])
        tries = [catalog.topic_alter(topic, SETTINGS, [0]) for catalog in (one, other) * 3]
        answers = await asyncio.gather(*tries, return_exceptions=True)
        (won,) = [answer for answer in answers if isinstance(answer, Topic)]
        assert sum(isinstance(answer, Conflict) for answer in answers) == 5
        assert won.partitions == 2
        assert await one.topic_find(topic.scope, "orders") == won


async def test_a_topic_is_deleted_once(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0])
        answers = await asyncio.gather(*(catalog.topic_delete(topic) for catalog in (one, other) * 3))
        assert sorted(answers) == [False] * 5 + [True]
        assert await other.topic_find(topic.scope, "orders") is None
        assert await other.topic_list(topic.scope) == []
        with pytest.raises(TopicNotFound):
            await one.topic_alter(topic, SETTINGS, [])


async def test_an_altered_topic_can_be_deleted_with_an_earlier_version(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0])
        await other.topic_alter(topic, SETTINGS, [0])
        assert await one.topic_delete(topic)
        (deleted,) = [each for each in await one.topic_deleted(limit=100_000) if each.incarnation == topic.incarnation]
        assert deleted.partitions == 2


async def test_a_recreated_topic_is_a_new_incarnation(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        old = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0, 0])
        await one.topic_delete(old)
        new = await other.topic_create(old.scope, "orders", SETTINGS, [0])
        assert new.incarnation > old.incarnation
        assert not {old.pid(0), old.pid(1)} & {new.pid(0)}
        assert not await one.topic_delete(old)
        with pytest.raises(TopicNotFound):
            await one.topic_alter(old, SETTINGS, [])
        assert await one.topic_find(old.scope, "orders") == new


async def test_deleted_topics_are_listed_until_they_are_forgotten(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope = await new_scope(one)
        topics = []
        for _ in range(3):
            topics.append(await one.topic_create(scope, "orders", FULL_SETTINGS, [0, 1]))
            assert await one.topic_delete(topics[-1])

        async def listed() -> list[Topic]:
            return [topic for topic in await other.topic_deleted(limit=100_000) if topic.scope == scope]

        assert sorted(await listed(), key=lambda topic: topic.incarnation) == topics
        assert len(await other.topic_deleted(limit=2)) == 2
        await one.topic_forget(topics[1])
        await one.topic_forget(topics[1])
        assert sorted(topic.incarnation for topic in await listed()) == [topics[0].incarnation, topics[2].incarnation]
        for topic in topics:
            await one.topic_forget(topic)
        assert await listed() == []


async def test_forgetting_an_open_topic_leaves_it(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        topic = await one.topic_create(await new_scope(one), "orders", SETTINGS, [0])
        await one.topic_forget(topic)
        assert await one.topic_find(topic.scope, "orders") == topic
        await one.topic_delete(topic)
        assert topic.incarnation in {each.incarnation for each in await one.topic_deleted(limit=100_000)}


async def test_a_token_is_found_by_its_hash(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, secret = await new_scope(one), new_secret()
        token = new_token(rights=tuple(Right), expires_at=utcnow() + timedelta(hours=1))
        await one.token_create(scope, token, hash_secret(secret))
        assert await other.token_find(hash_secret(secret)) == (scope, token)
        assert await other.token_find(hash_secret(new_secret())) is None


async def test_a_child_token_ends_with_its_parent(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, secret = await new_scope(one), new_secret()
        parent = new_token()
        child = new_token(parent=parent.id, expires_at=utcnow() + timedelta(hours=1))
        await one.token_create(scope, parent, hash_secret(new_secret()))
        await one.token_create(scope, child, hash_secret(secret))
        assert await other.token_find(hash_secret(secret)) == (scope, child)
        assert {each.id: each.parent for each in await other.token_list(scope)} == {
            parent.id: None,
            child.id: parent.id,
        }
        await one.token_revoke(scope, parent.id)
        assert await other.token_find(hash_secret(secret)) is None
        assert await other.token_list(scope) == []


async def test_expired_children_are_deleted_with_the_next_child(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, old, past = await new_scope(one), new_secret(), utcnow() - timedelta(seconds=1)
        parent, expired = new_token(), new_token(expires_at=past)
        await one.token_create(scope, parent, hash_secret(new_secret()))
        await one.token_create(scope, expired, hash_secret(new_secret()))
        await one.token_create(scope, new_token(parent=parent.id, expires_at=past), hash_secret(old))
        assert {each.id for each in await other.token_list(scope)} == {parent.id, expired.id}
        child = new_token(parent=parent.id, expires_at=utcnow() + timedelta(hours=1))
        await one.token_create(scope, child, hash_secret(new_secret()))
        assert await other.token_find(hash_secret(old)) is None
        assert {each.id for each in await other.token_list(scope)} == {parent.id, expired.id, child.id}


async def test_several_tokens_are_found_at_once_without_the_revoked_ones(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        scope, hashes = await new_scope(one), [hash_secret(new_secret()) for _ in range(3)]
        tokens = [new_token(), new_token()]
        for token, token_hash in zip(tokens, hashes, strict=False):
            await one.token_create(scope, token, token_hash)
        assert await other.tokens_find(hashes) == {hashes[0]: (scope, tokens[0]), hashes[1]: (scope, tokens[1])}
        assert await other.token_revoke(scope, tokens[0].id)
        assert await one.tokens_find(hashes) == {hashes[1]: (scope, tokens[1])}
        assert await one.tokens_find([]) == {}


async def test_an_expired_token_is_found_and_marked_as_expired(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, _):
        scope, secret = await new_scope(one), new_secret()
        await one.token_create(scope, new_token(expires_at=utcnow() - timedelta(hours=1)), hash_secret(secret))
        found = await one.token_find(hash_secret(secret))
        assert found is not None
        assert found[1].is_over(utcnow())


async def test_tokens_are_listed_and_revoked_in_their_scope_only(backing: Backing) -> None:
    async with backing.catalog_pair() as (one, other):
        dev, live = await new_scope(one), await new_scope(one)
        secrets = [new_secret() for _ in range(3)]
        tokens = [new_token(), new_token(name="other"), new_token()]
        for scope, token, secret in zip((dev, dev, live), tokens, secrets, strict=True):
            await one.token_create(scope, token, hash_secret(secret))
        assert {token.id for token in await other.token_list(dev)} == {tokens[0].id, tokens[1].id}
        assert await other.token_list(live) == [tokens[2]]
        assert not await other.token_revoke(live, tokens[0].id)
        assert await other.token_find(hash_secret(secrets[0])) == (dev, tokens[0])
        assert await other.token_revoke(dev, tokens[0].id)
        assert not await other.token_revoke(dev, tokens[0].id)
        assert await one.token_find(hash_secret(secrets[0])) is None
        assert await one.token_list(dev) == [tokens[1]]
