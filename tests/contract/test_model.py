"""Any sequence of operations against a model that is a plain list of messages per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import OffsetOutOfRange
from lakelog.storage.store import Append, Appended, PartitionStore, Payload, Refused
from tests.contract.stores import Backing
from tests.contract.values import EVERYTHING, create, new_producer, read_all, run

PARTITIONS = 2
EXAMPLES = {"memory": 200, "postgres": 25}

_partition = st.integers(0, PARTITIONS - 1)
_handle = st.integers(0, 1)
_step = st.one_of(
    st.tuples(
        st.just("append"), _handle, st.dictionaries(_partition, st.lists(st.integers(1, 5), min_size=1, max_size=3))
    ),
    st.tuples(st.just("repeat"), _handle, _partition),
    st.tuples(st.just("read"), _handle, st.tuples(_partition, st.integers(-2, 40), st.integers(1, 20))),
    st.tuples(st.just("raise"), _handle, st.tuples(_partition, st.integers(0, 40))),
    st.tuples(st.just("roll"), _handle, st.none()),
    st.tuples(st.just("drop"), _handle, st.none()),
    st.tuples(st.just("trim"), _handle, st.none()),
)


@dataclass(kw_only=True)
class Model:
    """Per partition: for each offset the batch that contains it, as (base, bytes); the log start; the producer."""

    pid: int
    log: list[tuple[int, bytes]] = field(default_factory=list)
    log_start: int = 0
    producer: bytes = field(default_factory=new_producer)
    bases: list[int] = field(default_factory=list)

    def append(self, counts: Sequence[int]) -> Append:
        """Return the append of the next batches, and add them to the model's log."""
        self.bases.append(len(self.log))
        payloads = []
        for count in counts:
            base = len(self.log)
            data = f"{self.pid}:{base}:{count}".encode()
            payloads.append(Payload(data=data, count=count))
            self.log += [(base, data)] * count
        sequenced = [run(self.producer, len(self.bases) - 1, count=sum(counts))]
        return Append(pid=self.pid, epoch=0, payloads=payloads, sequenced=sequenced)

    def batches(self, offset: int) -> list[tuple[int, bytes]]:
        return list(dict.fromkeys(self.log[offset:]))


async def take_step(store: PartitionStore, models: list[Model], verb: str, argument: object) -> None:
    match verb, argument:
        case "append", dict(counts):
            answers = await store.append([models[n].append(counts[n]) for n in counts])
            assert [(each.pid, each.base) for each in answers if isinstance(each, Appended)] == [
                (models[n].pid, models[n].bases[-1]) for n in counts
            ]
        case "repeat", int(n) if models[n].bases:
            sequenced = [run(models[n].producer, len(models[n].bases) - 1)]
            append = Append(pid=models[n].pid, epoch=0, payloads=[Payload(data=b"again", count=1)], sequenced=sequenced)
            (answer,) = await store.append([append])
            assert isinstance(answer, Refused)
            assert answer.verdicts[0].offset == models[n].bases[-1]
        case "read", (int(n), int(offset), int(max_messages)):
            await check_read(store, models[n], offset, max_messages)
        case "raise", (int(n), int(offset)):
            model = models[n]
            log_start = max(model.log_start, min(offset, len(model.log)))
            assert await store.log_start_raise([(model.pid, offset)]) == [(model.pid, log_start - model.log_start)]
            model.log_start = log_start
        case "roll", _:
            await store.roll()
        case "drop", _:
            await store.rolls_drop()
        case "trim", _:
            await store.trim({})


async def check_read(store: PartitionStore, model: Model, offset: int, max_messages: int) -> None:
    if not model.log_start <= offset <= len(model.log):
        with pytest.raises(OffsetOutOfRange):
            await store.read(model.pid, offset, max_messages=max_messages, max_bytes=EVERYTHING)
        return
    read = await store.read(model.pid, offset, max_messages=max_messages, max_bytes=EVERYTHING)
    assert read is not None
    assert (read.head.log_start, read.head.next_offset) == (model.log_start, len(model.log))
    found = [(each.base, each.payload) for each in read.batches]
    assert found == model.batches(offset)[: len(found)]
    assert bool(found) == (offset < len(model.log))
    assert sum(each.count for each in read.batches[:-1]) < max_messages


async def follow(backing: Backing, steps: list[tuple[str, int, object]]) -> None:
    async with backing.store_pair() as handles:
        models = [Model(pid=pid) for pid in await create(handles[0], PARTITIONS)]
        for verb, handle, argument in steps:
            await take_step(handles[handle], models, verb, argument)
        for model in models:
            found = [(each.base, each.payload) for each in await read_all(handles[1], model.pid)]
            assert found == model.batches(model.log_start)


def test_a_store_behaves_like_the_model(backing: Backing) -> None:
    @settings(deadline=None, max_examples=EXAMPLES[backing.name])
    @given(steps=st.lists(_step, max_size=30))
    def check(steps: list[tuple[str, int, object]]) -> None:
        asyncio.run(follow(backing, steps))

    check()
