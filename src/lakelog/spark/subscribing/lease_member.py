"""The driver as a member of a lease group: it takes, keeps and answers leases, and sends heartbeats.

It uses threads for what a worker does in its event loop. `subscribe` decides which messages run where.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import asdict, replace

from lakelog import Lakelog
from lakelog.client import processes
from lakelog.client._sync.group_member import GroupMember
from lakelog.client.retrying import Backoff, is_passing, is_undecided
from lakelog.client.values import Consumed
from lakelog.client.worker.answers import MAX_ANSWERS, fitting
from lakelog.client.worker.lease_extension import LeaseHolder
from lakelog.client.worker.lease_keeper import ThreadLeaseKeeper
from lakelog.errors import LakelogError, StaleGeneration, UnknownMember
from lakelog.model.group import DEFAULT_SESSION_MS, GroupKind, NewGroupSettings, Order
from lakelog.model.lease import Answered, ConsumeRequest, LeaseAnswer, Verb
from lakelog.model.membership import JoinRequest, Membership

log = processes.log

_FOR_EVER = float("inf")


class LeaseMember:
    """The member of one subscription. A thread keeps its leases until they are dropped."""

    def __init__(self, client: Lakelog, topic: str, group: str, settings: NewGroupSettings, lease_ms: int) -> None:
        self.owner = f"spark-{processes.unique_name()}"
        self.order = Order.KEY
        self._group = client.group(group)
        self._topic = topic
        self._settings = asdict(settings)
        self._lease_ms = lease_ms
        self._source = LeaseHolder(topic, group, self.owner)
        self._member = GroupMember(group, self._join, self._heartbeat, lambda: self._group.leave(self.owner))
        self._asking: ConsumeRequest | None = None
        self._keeper = ThreadLeaseKeeper(self._extend)
        self._leaving = threading.Event()

    def join(self) -> None:
        """Join the group. Raise an error if the server refuses: other settings, a missing right, a missing topic."""
        self._member.join()
        self.order = self._group.describe().group.settings.order
        self._keeper.begin()
        threading.Thread(target=self._member.keep_alive, name="lakelog-heartbeat", daemon=True).start()

    def leave(self) -> None:
        """Give back the leases of a call whose answer was lost, and leave the group."""
        self._leaving.set()
        self._keeper.close()
        # Leases that cannot be given back expire.
        with contextlib.suppress(LakelogError):
            if self._asking is not None:
                found = self._group.consume(replace(self._asking, wait_ms=0, max_messages=1), repeat=True)
                if answers := giving_back([found]):
                    self._group.answer(self._topic, self.owner, answers)
        self._member.leave()

    def take(self, count: int, wait_seconds: float) -> Consumed | None:
        """Lease up to `count` messages. Return None if no server answers now; raise a permanent refusal."""
        member = self._member.membership
        is_repeat = self._asking is not None
        request = self._asking or ConsumeRequest(
            topic=self._topic,
            group=self._group.name,
            owner=self.owner,
            request_id=uuid.uuid4().hex,
            max_messages=count,
            lease_ms=self._lease_ms,
            wait_ms=int(wait_seconds * 1000),
            # A handler runs alone in its process. No message is to blame if the driver dies, so none is reported as
            # running alone with it.
            isolates=True,
            **self._settings,
        )
        if member is not None:
            request = replace(request, member_id=member.member_id, generation=member.generation)
        # The same request is repeated until it is answered: it returns leases whose first answer was lost.
        self._asking = request
        try:
            found = self._group.consume(request, repeat=is_repeat)
        except (StaleGeneration, UnknownMember):
            with contextlib.suppress(LakelogError):
                self._member.heartbeat()
            return None
        except LakelogError as error:
            if not is_passing(error):
                self._asking = None
                raise
            log.warning("%s: Cannot take messages; retrying: %s", self._group.name, error.detail)
            return None
        self._asking = None
        return found

    def keep(self, partition: int, token: int) -> int:
        """Keep extending the lease from now on. Return its number."""
        return self._keeper.keep(self._source, partition, token, self._lease_ms / 1000, _FOR_EVER)

    def drop(self, numbers: Sequence[int]) -> None:
        self._keeper.drop(numbers)

    def answer(self, answers: Sequence[LeaseAnswer], give_up: Callable[[], bool]) -> list[Answered | LakelogError]:
        """Send the answers, and retry until `give_up` returns True. Return one result for each."""
        results: dict[int, Answered | LakelogError] = {}
        left = list(range(len(answers)))
        pauses = Backoff()
        while left:
            count = fitting([answers[each] for each in left[:MAX_ANSWERS]])
            some, left = left[:count], left[count:]
            results.update(zip(some, self._answered([answers[each] for each in some]), strict=True))
            waiting = {each: error for each in some if is_undecided(error := results[each])}
            if waiting and not give_up():
                error = waiting[min(waiting)]
                log.warning(
                    "%s: %d answers are not sent yet: %s Retrying.", self._group.name, len(waiting), error.detail
                )
                self._leaving.wait(pauses.next(error))
                left = [*waiting, *left]
        return [results[each] for each in range(len(answers))]

    def _answered(self, answers: Sequence[LeaseAnswer]) -> Sequence[Answered | LakelogError]:
        try:
            return self._group.answer(self._topic, self.owner, answers)
        except LakelogError as error:
            return [error] * len(answers)

    def lag(self) -> int:
        return self._group.lag(self._topic)

    def _join(self) -> Membership:
        request = JoinRequest(
            group=self._group.name,
            topics=(self._topic,),
            member_id=self.owner,
            client="spark",
            session_ms=DEFAULT_SESSION_MS,
            kind=GroupKind.LEASE,
            **self._settings,
        )
        return self._group.join(request)

    def _heartbeat(self, member: Membership) -> Membership:
        return self._group.heartbeat(member.member_id, member.generation)

    def _extend(
        self, source: LeaseHolder, answers: Sequence[LeaseAnswer], seconds: float
    ) -> list[Answered | LakelogError]:
        return self._group.answer(source.topic, source.owner, answers)


def giving_back(taken: Iterable[Consumed]) -> list[LeaseAnswer]:
    """Return the answers that release all these leases without counting a failure."""
    return [
        LeaseAnswer(
            verb=Verb.RELEASE, partition=lease.partition, token=lease.token, offsets=tuple(sorted(lease.offsets()))
        )
        for consumed in taken
        for lease in consumed.leases
    ]
