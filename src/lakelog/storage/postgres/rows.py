"""Rows of the catalog as values of the model."""

from __future__ import annotations

import asyncpg
import msgspec

from lakelog.model.group import Group, GroupKind, Reading
from lakelog.model.token import Right, Token
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.postgres.group_settings import settings_of


def scope_of(row: asyncpg.Record) -> Scope:
    return Scope(project=row["project"], environment=row["environment"], environment_id=row["environment_id"])


def topic_of(row: asyncpg.Record, scope: Scope) -> Topic:
    return Topic(
        incarnation=row["incarnation"],
        scope=scope,
        name=row["name"],
        epoch=row["epoch"],
        cells=tuple(row["cells"]),
        slot_cells=tuple(row["slot_cells"]),
        settings=msgspec.json.decode(row["settings"], type=TopicSettings),
        created_at=row["created_at"],
    )


def token_of(row: asyncpg.Record) -> Token:
    return Token(
        id=row["token_id"],
        name=row["name"],
        rights=frozenset(Right(right) for right in row["rights"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )


def group_of(row: asyncpg.Record, scope: Scope) -> Group:
    return Group(
        group_id=row["group_id"],
        scope=scope,
        name=row["name"],
        kind=GroupKind(row["kind"]),
        settings=settings_of(row["settings"]),
        version=row["version"],
        cell=row["cell"],
        paused=frozenset(row["paused"]),
        created_at=row["created_at"],
    )


def reading_of(row: asyncpg.Record) -> Reading:
    return Reading(
        group_id=row["group_id"],
        incarnation=row["incarnation"],
        starts=tuple(row["starts"]),
        epoch=row["reading_epoch"],
        targets=tuple(row["targets"]),
    )
