"""Group commit: shared commits, order, duplicates, refusals, failures, and no delay by a slow partition."""

from __future__ import annotations

import asyncio
import random

import pytest

from lakelog import failpoints
from lakelog.batches import decode, key_hash, to_messages
from lakelog.engine.log import committer as module
from lakelog.engine.log.committer import AppendResult, Committer, PendingAppend
from lakelog.errors import Conflict, LakelogError, OutcomeUnknown, Unavailable
from lakelog.storage.store import HeadState, Refusal, Verdict
from tests.kit.waiting import eventually_async
from tests.unit.engine.support import WatchedStore, packed, text

PRODUCER = b"p" * 16
OTHER = b"q" * 16


async def committing(pids: int = 1) -> tuple[Committer, WatchedStore, list[int]]:
    """A committer over partitions 1 to `pids`; the list takes the partitions that it says grew."""
    store = WatchedStore()
    await store.heads_create(range(1, pids + 1), 0)
    grown: list[int] = []
    return Committer(store, grown.append), store, grown


def loose(*given: str, pid: int = 1, epoch: int = 0, keys: tuple[str | None, ...] = ()) -> PendingAppend:
    hashes = {index: key_hash(key) for index, key in enumerate(keys) if key is not None}
    return PendingAppend(pid=pid, epoch=epoch, size=100, messages=[text(value) for value in given], key_hashes=hashes)


def encoded(*given: str, pid: int = 1, producer: tuple[bytes, int] | None = None) -> PendingAppend:
    return PendingAppend(pid=pid, epoch=0, size=100, payload=packed(*given), producer=producer)


async def log_of(store: WatchedStore, pid: int = 1) -> list[str]:
    read = await store.read(pid, 0, max_messages=1 << 20, max_bytes=1 << 30)
    assert read is not None
    return [(m.value or b"").decode() for batch in read.batches for m in to_messages(decode(batch.payload))]


async def busy(store: WatchedStore, commits: int = 1) -> None:
    """Until that many commits were handed to the store."""
    await eventually_async(lambda: len(store.appends) >= commits)


async def block(committer: Committer, store: WatchedStore, *pids: int) -> list[asyncio.Future[AppendResult]]:
    """Commits of their own for these partitions, under way until their gates open."""
    blockers = []
    for number, pid in enumerate(pids, start=1):
        blockers.append(committer.submit(loose("x", pid=pid)))
        await busy(store, number)
    return blockers


async def test_what_arrives_during_a_commit_shares_the_next_one() -> None:
    committer, store, grown = await committing()
    gate = store.hold()
    first = committer.submit(loose("0"))
    await busy(store)
    others = [committer.submit(loose(str(n))) for n in range(1, 100)]
    gate.set()
    outcomes = await asyncio.gather(first, *others)
    assert [outcome.base for outcome in outcomes] == list(range(100))
    assert [[append.count for append in appends] for appends in store.appends] == [[1], [99]]
    assert len(store.appends[1][0].payloads) == 1
    assert await log_of(store) == [str(n) for n in range(100)]
    assert grown == [1, 1]


async def test_an_idle_committer_commits_at_once() -> None:
    committer, store, _ = await committing()
    for n in range(3):
        assert (await committer.submit(loose(str(n)))).base == n
    assert len(store.appends) == 3


async def test_what_arrives_in_one_turn_of_the_loop_shares_the_first_commit() -> None:
    committer, store, _ = await committing(pids=2)
    outcomes = await asyncio.gather(*(committer.submit(loose(str(n), pid=n % 2 + 1)) for n in range(10)))
    assert [outcome.base for outcome in outcomes] == [n // 2 for n in range(10)]
    assert [[append.count for append in appends] for appends in store.appends] == [[5, 5]]


async def test_partitions_share_a_commit_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS_PER_COMMIT", 10)
    committer, store, _ = await committing(pids=24)
    gate = store.hold()
    futures = [committer.submit(loose("x", pid=pid)) for pid in range(1, 25)]
    await busy(store, 2)
    gate.set()
    await asyncio.gather(*futures)
    assert [len(appends) for appends in store.appends] == [10, 10, 4]


async def test_order_of_arrival_is_kept_and_no_partition_is_in_two_commits_at_once() -> None:
    committer, store, _ = await committing(pids=3)
    chance = random.Random(1)
    arrived: dict[int, list[str]] = {1: [], 2: [], 3: []}
    futures = []
    for n in range(400):
        pid = chance.randint(1, 3)
        arrived[pid].append(str(n))
        futures.append(committer.submit(chance.choice((loose, encoded))(str(n), pid=pid)))
        for _ in range(chance.randint(0, 2)):
            await asyncio.sleep(0)
    await asyncio.gather(*futures)
    assert {pid: await log_of(store, pid) for pid in arrived} == arrived
    assert len(store.appends) < 400


async def test_loose_messages_and_payloads_of_one_commit_have_their_own_offsets_in_order_of_arrival() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    head = committer.submit(loose("a"))
    await busy(store)
    parts = [encoded("b", "c"), loose("d"), loose("e", "f"), encoded("g"), encoded("h", "i"), loose("j")]
    futures = [committer.submit(part) for part in parts]
    gate.set()
    await asyncio.gather(head, *futures)
    assert await log_of(store) == list("abcdefghij")
    assert [future.result().base for future in futures] == [1, 3, 4, 6, 7, 9]
    assert [payload.count for payload in store.appends[1][0].payloads] == [2, 3, 1, 2, 1]


async def test_a_producers_batches_may_share_a_commit_whatever_their_form() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    head = committer.submit(loose("a"))
    await busy(store)
    second = loose("c")
    second.producer = (PRODUCER, 1)
    futures = [committer.submit(part) for part in (encoded("b", producer=(PRODUCER, 0)), second)]
    gate.set()
    await asyncio.gather(head, *futures)
    assert [future.result() for future in futures] == [AppendResult(base=1), AppendResult(base=2)]
    assert len(store.appends) == 2


async def test_a_caller_that_gave_up_before_the_commit_is_not_written() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    first = committer.submit(loose("a"))
    await busy(store)
    gone, last = committer.submit(loose("b")), committer.submit(loose("c"))
    gone.cancel()
    gate.set()
    assert [(await first).base, (await last).base] == [0, 1]
    assert await log_of(store) == ["a", "c"]


async def test_a_caller_that_gave_up_during_the_commit_disturbs_nobody() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    first, other = committer.submit(loose("a")), committer.submit(loose("b"))
    await busy(store)
    first.cancel()
    gate.set()
    assert (await other).base == 1
    assert await log_of(store) == ["a", "b"]


async def test_when_all_that_waited_gave_up_the_partition_is_free() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    first = committer.submit(loose("a"))
    await busy(store)
    second = committer.submit(loose("b"))
    second.cancel()
    gate.set()
    await first
    await committer.drain()
    assert (await committer.submit(loose("c"))).base == 1
    assert len(store.appends) == 2


async def test_a_repeat_of_a_key_is_held_back_from_the_commit_of_the_first() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    head = committer.submit(loose("a"))
    await busy(store)
    parts = [loose("b", keys=("k",)), loose("c", keys=("other",)), loose("b", keys=("k",)), loose("d")]
    futures = [committer.submit(part) for part in parts]
    gate.set()
    await asyncio.gather(head, *futures)
    assert [append.keyed[0].key_hash for append in store.appends[1]] == [key_hash("k")]
    assert len(store.appends[1][0].keyed) == 2
    assert futures[2].result().duplicate
    assert parts[2].duplicates == {0: 1}
    assert await log_of(store) == ["a", "b", "c", "d"]


async def test_a_retry_of_a_numbered_batch_is_held_back_from_the_commit_of_the_first() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    head = committer.submit(loose("a"))
    await busy(store)
    futures = [committer.submit(encoded("b", "c", producer=(PRODUCER, 0))) for _ in range(3)]
    gate.set()
    await asyncio.gather(head, *futures)
    assert [future.result().base for future in futures] == [1, 1, 1]
    assert [future.result().duplicate for future in futures] == [False, True, True]
    assert await log_of(store) == ["a", "b", "c"]


async def test_verdicts_answer_the_right_callers_and_the_rest_is_appended() -> None:
    committer, store, _ = await committing()
    await committer.submit(encoded("p0", producer=(PRODUCER, 0)))
    await committer.submit(loose("k1", keys=("k1",)))
    gate = store.hold()
    head = committer.submit(loose("head"))
    await busy(store, 3)
    keyed = loose("x", "k1", "y", "k2", keys=(None, "k1", None, "k2"))
    plain, repeat = loose("plain"), encoded("p0", producer=(PRODUCER, 0))
    gap, unknown = encoded("p5", producer=(PRODUCER, 5)), encoded("q3", producer=(OTHER, 3))
    following = encoded("p1", "p1b", producer=(PRODUCER, 1))
    futures = [committer.submit(part) for part in (gap, keyed, repeat, unknown, plain, following)]
    gate.set()
    await asyncio.gather(head, *futures)
    assert await log_of(store) == ["p0", "k1", "head", "x", "y", "k2", "plain", "p1", "p1b"]
    assert gap.done.result() == AppendResult(refusal=Verdict.GAP)
    assert unknown.done.result() == AppendResult(refusal=Verdict.UNKNOWN_PRODUCER)
    assert repeat.done.result() == AppendResult(base=0, duplicate=True)
    assert (keyed.done.result(), keyed.duplicates) == (AppendResult(base=3), {1: 1})
    assert plain.done.result() == AppendResult(base=6)
    assert following.done.result() == AppendResult(base=7)


async def test_what_came_later_does_not_overtake_what_is_appended_again() -> None:
    committer, store, _ = await committing()
    await committer.submit(loose("k", keys=("k",)))
    gate = store.hold()
    mixed = loose("a", "k", keys=(None, "k"))
    again = committer.submit(mixed)
    await busy(store, 2)
    later = committer.submit(loose("b"))
    gate.set()
    await asyncio.gather(again, later)
    assert await log_of(store) == ["k", "a", "b"]


async def test_epochs_do_not_mix_in_one_append() -> None:
    committer, store, _ = await committing()
    await store.epoch_raise([1], 1)
    gate = store.hold()
    head = committer.submit(loose("a", epoch=1))
    await busy(store)
    old, new = committer.submit(loose("b", epoch=0)), committer.submit(loose("c", epoch=1))
    gate.set()
    await asyncio.gather(head, old, new)
    assert (old.result(), new.result()) == (AppendResult(refusal=Refusal.EPOCH), AppendResult(base=1))
    assert [appends[0].epoch for appends in store.appends] == [1, 0, 1]


async def test_a_refusal_of_one_partition_does_not_touch_the_others_of_its_commit() -> None:
    committer, store, grown = await committing(pids=4)
    await store.heads_close([2], HeadState.SEALED)
    gate = store.hold()
    blockers = await block(committer, store, 3, 4)
    futures = [committer.submit(loose("a", pid=pid)) for pid in (1, 2, 99, 2)]
    gate.set()
    await asyncio.gather(*blockers, *futures)
    closed, missing = AppendResult(refusal=Refusal.CLOSED), AppendResult(refusal=Refusal.MISSING)
    assert [future.result() for future in futures] == [AppendResult(base=0), closed, missing, closed]
    assert [[append.pid for append in appends] for appends in store.appends] == [[3], [4], [1, 2, 99]]
    assert sorted(grown) == [1, 3, 4]


@pytest.mark.parametrize("error", [Unavailable("down", topic="t"), OutcomeUnknown("lost"), Conflict("no")])
async def test_a_failure_fails_all_of_its_commit_with_its_class(error: LakelogError) -> None:
    committer, store, _ = await committing(pids=4)
    gates = {pid: store.hold(pid) for pid in (1, 3, 4)}
    blockers = await block(committer, store, 3, 4)
    futures = [committer.submit(loose("a", pid=pid)) for pid in (1, 1, 2)]
    gates[3].set()
    await busy(store, 3)
    store.failures.append(error)
    gates[1].set()
    failures = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(failure) for failure in failures] == [type(error)] * 3
    assert [(f.detail, f.subject) for f in failures if isinstance(f, LakelogError)] == [
        (error.detail, error.subject)
    ] * 3
    assert len({id(failure) for failure in failures}) == 3
    gates[4].set()
    await asyncio.gather(*blockers)
    assert (await committer.submit(loose("b"))).base == 0


async def test_what_waited_behind_a_failed_commit_is_committed() -> None:
    committer, store, _ = await committing()
    gate = store.hold()
    first = committer.submit(loose("a"))
    await busy(store)
    second = committer.submit(loose("b"))
    store.failures.append(Unavailable())
    gate.set()
    with pytest.raises(Unavailable):
        await first
    assert (await second).base == 0


async def test_an_unexpected_failure_is_an_unknown_outcome_and_the_committer_goes_on() -> None:
    committer, store, _ = await committing()
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))
    surprise = RuntimeError("boom")
    store.failures.append(surprise)
    with pytest.raises(OutcomeUnknown, match="boom"):
        await committer.submit(loose("a"))
    assert (await committer.submit(loose("b"))).base == 0
    await eventually_async(lambda: told == [surprise])


async def test_a_slow_partition_holds_up_no_other_for_longer_than_one_commit() -> None:
    committer, store, _ = await committing(pids=3)
    gate = store.hold(pid=1)
    slow = committer.submit(loose("slow", pid=1))
    await busy(store)
    async with asyncio.timeout(5):
        for n in range(5):
            # The second one waits for the commit of the first, and not for the slow partition's.
            both = [committer.submit(loose(str(n), pid=2)) for _ in range(2)]
            await asyncio.gather(*both, committer.submit(loose(str(n), pid=3)))
    assert not slow.done()
    assert len(await log_of(store, 2)) == 10
    gate.set()
    await slow


async def test_an_append_stops_at_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MESSAGES_PER_APPEND", 5)
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 350)
    committer, store, _ = await committing()
    gate = store.hold()
    sizes = (1, 2, 3, 2, 7, 1, 1, 1, 1)
    futures = [committer.submit(loose(*("x" * size))) for size in sizes]
    gate.set()
    await asyncio.gather(*futures)
    assert [appends[0].count for appends in store.appends] == [3, 5, 7, 3, 1]


async def test_drain_waits_for_everything_that_was_submitted() -> None:
    committer, store, _ = await committing(pids=5)
    gate = store.hold()
    futures = [committer.submit(loose(str(n), pid=n % 5 + 1)) for n in range(50)]
    draining = asyncio.create_task(committer.drain())
    await busy(store)
    assert not draining.done()
    gate.set()
    await draining
    assert all(future.done() for future in futures)


async def test_a_fail_point_behind_the_commit_leaves_the_outcome_unknown() -> None:
    committer, store, _ = await committing()
    failpoints.arm("publish.after_commit=error@1")
    try:
        with pytest.raises(OutcomeUnknown):
            await committer.submit(loose("a", keys=("k",)))
    finally:
        failpoints.arm("")
    again = loose("a", keys=("k",))
    assert (await committer.submit(again)).duplicate
    assert await log_of(store) == ["a"]
