"""A redrive into a topic with a schema: repaired values are validated, unchanged ones are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.engine.groups.dead_letters import DeadLetters, ReadResources
from lakelog.engine.log.threads import Threads
from lakelog.engine.log.validators import Validators
from lakelog.errors import SchemaViolation
from lakelog.model.dead_letters import Repair
from lakelog.model.message import Message
from lakelog.model.schema import SchemaSetting
from tests.unit.engine.groups.test_dead_letters import Morgue

JSON = "application/json"


async def test_only_repaired_values_are_validated() -> None:
    world = Morgue()
    await world.open()
    world.dead = DeadLetters(
        world.catalog,
        world.cells,
        world.topics,
        world.group_directory,
        lambda *_: None,
        ReadResources(validators=Validators(world.catalog, Threads())),
    )
    old, wrong, good = await world.die(0, *(Message(value=b"old", content_type=JSON) for _ in range(3)))
    settings = replace(world.topic_.settings, schema=SchemaSetting(version=1))
    await world.catalog.topic_alter(world.topic_, settings, (), '{"type":"object"}')
    world.topics.forget(None)
    with pytest.raises(SchemaViolation, match="schema version 1"):
        await world.redrive(repaired={wrong: Repair(value=b"[]")})
    done = await world.redrive(repaired={wrong: Repair(value=b"[]"), good: Repair(value=b"{}")})
    assert (done.redriven, done.ids, [each.id for each in done.refusals]) == (1, (good,), [wrong])
    assert (await world.redrive(message_ids=(old,))).redriven == 1
