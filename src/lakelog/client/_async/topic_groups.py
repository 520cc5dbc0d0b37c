"""The group methods of a topic: subscriptions, seeks, skips, pauses, lag, dead letters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.client._async.publishing import AsyncTopicState
from lakelog.client.publishing.codec import MessageBuilder
from lakelog.client.worker.defaults import subscription_options
from lakelog.client.worker.handlers import Filter, HandlerFunction, OnAck, Once, OnDead
from lakelog.client.worker.options import Retries, StartFrom
from lakelog.client.worker.pool import Subscribe
from lakelog.errors import InvalidRequest
from lakelog.model.arguments import check_text, check_time, check_whole, refusal
from lakelog.model.group import Assignor, Order
from lakelog.model.limits import MAX_PARTITIONS
from lakelog.model.names import check_name
from lakelog.model.progress import GroupTopicQuery, PauseRequest, TopicGroupsRequest, TopicStats, TopicStatsRequest
from lakelog.model.seek import SeekRequest, Skipped, SkipRequest, Sought
from lakelog.wire.operations import groups as operations

T = TypeVar("T")


class AsyncTopicGroups(Generic[T]):
    """The group methods of `AsyncTopic`."""

    _state: AsyncTopicState
    _builder: MessageBuilder[T]

    def subscribe(
        self,
        handler: HandlerFunction[T] | None = None,
        /,
        *,
        group: str,
        concurrency: int | None = None,
        batch: int | None = None,
        batch_wait: timedelta | float = 1.0,
        batch_size: int | None = None,
        max_in_flight: int | None = None,
        prefetch: int | None = None,
        filter: Filter[T] | None = None,
        once: Once[T] | None = None,
        retries: Retries | None = None,
        dead_letter: bool | None = None,
        on_dead: OnDead[T] | None = None,
        on_ack: OnAck[T] | None = None,
        start_from: StartFrom | None = None,
        ack: Literal["auto", "manual"] = "auto",
        ack_timeout: timedelta | float | None = None,
        lease: timedelta | float | None = None,
        order: Order | str | None = None,
        assignor: Assignor | str | None = None,
        session_timeout: timedelta | float | None = None,
        heartbeat: timedelta | float | None = None,
    ) -> Subscribe[T]:
        """Subscribe a handler to the topic, as a member of a group. Handlers run from `log.run()` or `log.start()` on.

        Use it as a decorator, `@topic.subscribe(group="billing")`, or give it the handler. The group's members share
        the messages: each goes to one of them. When the handler returns, the message is acked; when it raises, the
        message is delivered again later as `retries` say, and then becomes a dead letter.

        `order`, `filter`, `retries`, `dead_letter` and `assignor` are settings of the group. The first member creates
        the group with them; one that states other settings than the group has raises `GroupSettingsDiffer` when it
        starts. None (the default) accepts the group's setting. `filter`, `retries` and `dead_letter` may differ in each
        topic of a group: in a topic that the group does not read yet, they become the settings of that topic.

        An argument that is not given is that of `connect(defaults=…)`; the defaults below apply if that has none.

        Args:
            handler: A function of `(value)` or `(value, delivery)`. A coroutine function runs in the worker's event
                loop, and awaits the methods of its delivery. A plain function runs in a thread; an awaitable that it
                returns is awaited in the event loop. Other results are ignored. Generators are refused. With `batch`,
                a function of `(batch)`: a coroutine function gets a `lakelog.AsyncBatch`, a plain function a
                `lakelog.Batch`.
            group: The name of the group. A client has one handler for each topic and group.
            concurrency: Handlers that run at the same time in this process, 1 or more. Default: 1.
            batch: Call the handler with up to that many messages at once, from 1 to 10,000. When it returns, all are
                acked, except those that it named with `batch.fail`; when it raises, all are retried. Default: None,
                the handler gets single messages.
            batch_wait: How long the first message of a batch waits for others, in seconds or as a timedelta, 0 or more.
                Default: 1 second. Then the handler gets the messages that there are. For `batch` alone.
            batch_size: Messages that one call to the server returns at most, from 1 to 10,000. Default: 50, or
                `batch` if that is more.
            max_in_flight: Messages that this process holds at most, running or not, 1 or more, and at least `batch`.
                Default: `concurrency` (times `batch`) plus `prefetch`.
            prefetch: Messages that are leased ahead, and wait in this process for a free handler. 0 turns it off. The
                default is automatic: about 100 ms of work, at most `batch_size`, and 0 while handlers are slow. With
                `batch`, the default is 0.
            filter: Which messages the handler gets. A text such as `"value.total > 100"` is the group's filter: other
                messages are finished on the server. A plain function of the value runs in this process; messages for
                which it returns False are acked. An empty text states that the topic has no filter. Default: the
                group's filter, of a new group none.
            once: Accept one run per value in this group and topic, for 24 hours: "key", "headers.NAME", "value", a
                field such as "value.order_id" of a JSON value, or a plain function of the value that returns text,
                bytes, a number or a list of them. Messages that repeat an accepted value are finished as filtered
                without running the handler. A message without the value, or with None, always runs. Default: None,
                all messages run.
            retries: How often a message is delivered again after its handler failed: a number from 0 to 1000, with
                growing delays, or `lakelog.Exponential(…)` or `lakelog.Fixed(…)`. Default: the group's; of a new group
                3.
            dead_letter: Keep a message that failed too often as a dead letter. With False, it is discarded. Default:
                the group's; of a new group True.
            on_dead: A function of `(delivery, error)`, called after a message became a dead letter. Plain or a
                coroutine function. An exception is logged.
            on_ack: A function of `(delivery)`, called after the server accepted an ack. Plain or a coroutine function.
                An exception is logged.
            start_from: Where a group begins that has not read the topic before: "latest" (the default: messages
                published from now on), "earliest", a datetime with a time zone, or an offset, for every partition.
                "none" raises `NoPosition` until the group was given a position with `seek`. A group that reads the
                topic already resumes from its committed offsets.
            ack: "auto" (the default) acks a message when its handler returns. With "manual", the handler calls
                `delivery.ack()`; one that returns without an answer has failed.
            ack_timeout: How long the handler may take for one call, in seconds or as a timedelta, above zero.
                Default: 30 seconds. Then the message has failed; a coroutine is cancelled, a thread runs on.
                `delivery.extend` gives more time.
            lease: How soon other members get the messages of this process if it dies, in seconds or as a timedelta,
                from 0.1 seconds to 12 hours. Default: 30 seconds. The lease is extended while handlers run.
            order: "key" runs the messages of one key one after another, over all members; "partition" all messages of
                a partition; "none" keeps no order. Default: the group's; of a new group "key".
            assignor: How partitions are shared among the members: "cooperative-sticky", "sticky", "range" or
                "round-robin". Default: the group's; of a new group "cooperative-sticky".
            session_timeout: How long this member stays in the group without a heartbeat, in seconds or as a timedelta,
                from 0.5 seconds to 30 minutes. Default: 30 seconds. Then its partitions go to other members.
            heartbeat: The time between two heartbeats, in seconds or as a timedelta, above zero and shorter than
                `session_timeout`. Default: a third of `session_timeout`, at most 10 seconds.

        Raises:
            InvalidRequest: An argument is not valid, the client has a handler for this topic and group, or its workers
                run already.
        """
        self._state.calls.check_open()
        given = {
            "concurrency": concurrency,
            "batch": batch,
            "batch_wait": batch_wait,
            "batch_size": batch_size,
            "max_in_flight": max_in_flight,
            "prefetch": prefetch,
            "filter": filter,
            "once": once,
            "retries": retries,
            "dead_letter": dead_letter,
            "on_dead": on_dead,
            "on_ack": on_ack,
            "start_from": start_from,
            "ack": ack,
            "ack_timeout": ack_timeout,
            "lease": lease,
            "order": order,
            "assignor": assignor,
            "session_timeout": session_timeout,
            "heartbeat": heartbeat,
        }
        options = subscription_options(self._state.pool.defaults, given)
        subscribe = Subscribe(self._state.pool, self._state.name, group, self._builder.codec, options)
        if handler is not None:
            subscribe(handler)
        return subscribe

    async def seek(
        self,
        group: str,
        *,
        to: Literal["earliest", "latest"] | datetime | None = None,
        offset: int | None = None,
        message_id: str | None = None,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> list[Sought]:
        """Move a group in this topic. Return for each partition where the group was and where it continues.

        Leases are revoked: an answer to their messages raises `LeaseLost`. Waiting retries are forgotten.
        Give one of `to`, `offset` and `message_id`.

        Args:
            group: The name of the group. A missing group raises `GroupNotFound`.
            to: "earliest", "latest", or a datetime with a time zone: the first message appended at that time or later.
            offset: The offset of the next message to read, 0 or more. An offset outside the log is moved to the nearest
                one inside it.
            message_id: The id of a message, which is the next to read in its partition. Other partitions stay.
            partition: The only partition to move. Default: all partitions of the topic.
            dry_run: Return what would be done, and change nothing. Default: False.
        """
        check_name("group", group)
        if partition is not None:
            check_whole("partition", partition, 0, MAX_PARTITIONS - 1)
        target = _target(to, offset, message_id)
        request = SeekRequest(group=group, topic=self._state.name, partition=partition, dry_run=dry_run, **target)
        return [*(await self._state.calls.call(operations.SEEK, request)).partitions]

    async def skip(self, group: str, *, partition: int, offset: int, dry_run: bool = False) -> Skipped:
        """Move a group to an offset of one partition without delivering the messages below it. Return what was skipped.

        Use it to get past messages that cannot be read, such as those of a damaged segment. `describe` of the group
        names them. Skipped messages are counted as `cut`, also those that wait for a retry. Leased messages stay with
        their owners; one that fails is retried. Repeating the call skips nothing more. Raises `OffsetOutOfRange` if the
        offset is above the end of the partition, or if there is nothing to skip below it.

        Args:
            group: The name of the group. A missing group raises `GroupNotFound`. A cursor group raises
                `GroupKindDiffers`: use `seek`.
            partition: The number of the partition.
            offset: The offset of the next message to deliver.
            dry_run: Return what would be skipped, and change nothing. Default: False.
        """
        check_name("group", group)
        check_whole("partition", partition, 0, MAX_PARTITIONS - 1)
        check_whole("offset", offset, 0)
        request = SkipRequest(group=group, topic=self._state.name, partition=partition, offset=offset, dry_run=dry_run)
        return await self._state.calls.call(operations.SKIP, request)

    async def pause(self, group: str | None = None) -> None:
        """Stop the delivery of messages of this topic. Running handlers finish, and their acks are accepted.

        Args:
            group: The group to pause. Default: all groups that read the topic, and those that begin to read it before
                `resume` is called without a group.
        """
        calls, name = self._state.calls, self._state.name
        if group is None:
            await calls.call(operations.PAUSE_TOPIC, TopicGroupsRequest(topic=name))
        else:
            request = PauseRequest(group=check_name("group", group), topic=name)
            await calls.call(operations.PAUSE_GROUP, request)

    async def resume(self, group: str | None = None) -> None:
        """Continue the delivery of messages after `pause`.

        Args:
            group: The group to resume. Default: all groups that read the topic.
        """
        calls, name = self._state.calls, self._state.name
        if group is None:
            await calls.call(operations.RESUME_TOPIC, TopicGroupsRequest(topic=name))
        else:
            request = PauseRequest(group=check_name("group", group), topic=name)
            await calls.call(operations.RESUME_GROUP, request)

    async def lag(self, group: str) -> int:
        """Return how many messages of this topic the group has not finished.

        Args:
            group: The name of the group.
        """
        request = GroupTopicQuery(group=check_name("group", group), topic=self._state.name)
        return (await self._state.calls.call(operations.LAG, request)).lag

    async def stats(self, *, described: bool = False) -> TopicStats:
        """Return figures of the topic: messages, partitions, oldest and newest message, and the lag of each group.

        Args:
            described: Whether the figures have the description of the topic, so that it needs no call of its own.
                Default: False.
        """
        request = TopicStatsRequest(topic=self._state.name, described=described)
        return await self._state.calls.call(operations.TOPIC_STATS, request)

    def dead_letters(self, group: str) -> AsyncDeadLetters:
        """Return the dead letters of a group in this topic, to list, redrive or discard them.

        Args:
            group: The name of the group.
        """
        return AsyncDeadLetters(self._state.calls, check_name("group", group), self._state.name)


def _target(to: str | datetime | None, offset: int | None, message_id: str | None) -> dict[str, Any]:
    """Return the target of a seek as fields of its request."""
    if (to is not None) + (offset is not None) + (message_id is not None) != 1:
        raise InvalidRequest("Say where to seek: give one of `to`, `offset` and `message_id`.")
    if message_id is not None:
        return {"message_id": check_text("message_id", message_id)}
    if offset is not None:
        return {"offset": check_whole("offset", offset, 0)}
    if isinstance(to, datetime):
        return {"timestamp": check_time("to", to)}
    if to in ("earliest", "latest"):
        return {"position": to}
    raise refusal("to", "'earliest', 'latest' or a datetime with a time zone", to)
