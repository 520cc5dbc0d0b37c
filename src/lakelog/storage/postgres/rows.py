"""Conversion of rows of the catalog and of a cell to values."""

from __future__ import annotations

from functools import lru_cache

import asyncpg
import msgspec

from lakelog.model.group import Group, GroupKind, GroupTopic
from lakelog.model.kinds import DeadLetterState
from lakelog.model.message import partition_of_id
from lakelog.model.segment import Segment
from lakelog.model.token import Right, Token
from lakelog.model.topic import Scope, Topic, TopicSettings
from lakelog.storage.groups import DeadLetterKey, StoredDeadLetter
from lakelog.storage.postgres.group_settings import KEPT_SETTINGS, settings_of
from lakelog.storage.store import Head, HeadState

DEAD_LETTER_STATES = (DeadLetterState.DEAD, DeadLetterState.REDRIVEN, DeadLetterState.DISCARDED)
"""States in the order of their stored numbers."""
_HEAD_STATES = {state.value: state for state in HeadState}


def scope_of(row: asyncpg.Record) -> Scope:
    return Scope(project=row["project"], environment=row["environment"], environment_id=row["environment_id"])


def topic_of(row: asyncpg.Record, scope: Scope) -> Topic:
    return Topic(
        incarnation=row["incarnation"],
        scope=scope,
        name=row["name"],
        epoch=row["epoch"],
        version=row["version"],
        cells=tuple(row["cells"]),
        slot_cells=tuple(row["slot_cells"]),
        settings=_topic_settings_of(row["settings"]),
        created_at=row["created_at"],
    )


@lru_cache(maxsize=KEPT_SETTINGS)
def _topic_settings_of(text: str) -> TopicSettings:
    """Return stored settings. Most topics have equal ones, whose checks take longer than the rest of a row."""
    return msgspec.json.decode(text, type=TopicSettings)


def token_of(row: asyncpg.Record) -> Token:
    return Token(
        id=row["token_id"],
        name=row["name"],
        rights=tuple(Right(right) for right in row["rights"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        parent=row["parent_id"],
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


def group_topic_of(row: asyncpg.Record) -> GroupTopic:
    return GroupTopic(
        group_id=row["group_id"],
        incarnation=row["incarnation"],
        starts=tuple(row["starts"]),
        epoch=row["position_epoch"],
        targets=tuple(row["targets"]),
        timelines=tuple(row["timelines"]),
    )


def head_of(row: asyncpg.Record) -> Head:
    return Head(
        pid=row["pid"],
        version=row["version"],
        next_offset=row["next_offset"],
        log_start=row["log_start"],
        roll=row["roll"],
        state=_HEAD_STATES[row["state"]],
        epoch=row["epoch"],
        appended_at=row["appended_at"],
        total_bytes=row["total_bytes"],
    )


def segment_of(row: asyncpg.Record) -> Segment:
    """Return the segment of a row that also has the columns of a head."""
    return Segment(
        partition=partition_of_id(row["pid"]),
        first=row["first_offset"],
        end=row["end_offset"],
        path=row["path"],
        bytes=row["bytes"],
        file_hash=row["file_hash"],
        content_hash=row["content_hash"],
        first_at=row["first_at"],
        last_at=row["last_at"],
        epoch=row["segment_epoch"],
        groups=tuple(row["groups"]),
    )


def dead_letter_of(row: asyncpg.Record) -> StoredDeadLetter:
    return StoredDeadLetter(
        group_id=row["group_id"],
        key=DeadLetterKey(pid=row["pid"], offset=row["message_offset"], epoch=row["epoch"]),
        state=DEAD_LETTER_STATES[row["state"]],
        at_ms=row["at_ms"],
        deliveries=row["deliveries"],
        failures=row["failures"],
        reason=row["reason"],
        owner=row["owner"],
        payload=row["payload"],
        redriven_to=row["redriven_to"],
        traceback=row["traceback"],
        fingerprint=row["fingerprint"],
    )
