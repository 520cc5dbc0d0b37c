"""Answers to the batches of a pull consumer with several messages of one key."""

from __future__ import annotations

import lakelog

FAST = lakelog.Fixed(max=1, seconds=0.01)


def test_a_batch_with_several_messages_of_a_key_is_nacked_acked_and_failed() -> None:
    """The server takes the messages of a key in order. Only the first one of a nack counts as failed."""
    with lakelog.connect("memory://") as log:
        topic = log.topic("work")
        topic.create()
        for value in range(4):
            topic.publish(value, key="k")
        with log.consumer("work", group="g", start_from="earliest", retries=FAST) as consumer:
            batch = consumer.batch(10, timeout=10, least=4)
            assert batch.values == [0, 1, 2, 3]
            batch.nack(delay=0.0, reason="not now")
            retried = consumer.batch(10, timeout=10)
            assert [(message.value, message.failures) for message in retried] == [(0, 1)]
            retried.ack()
            again = consumer.batch(10, timeout=10, least=3)
            assert [(message.value, message.failures) for message in again] == [(1, 0), (2, 0), (3, 0)]
            again.fail(again[1], "bad")
            again.extend(60)
            again.ack()
        assert topic.lag("g") == 0
        assert [(letter.offset, letter.error) for letter in topic.dead_letters("g")] == [(2, "bad")]
