"""One group with two topics: each subscription has the settings of its own topic, over every transport."""

from __future__ import annotations

import pytest

import lakelog
from lakelog.errors import GroupSettingsDiffer
from tests.kit.waiting import eventually


def test_each_topic_of_a_group_has_its_own_settings(url: str) -> None:
    with lakelog.connect(url) as log, lakelog.connect(url) as other:
        orders, refunds = log.topic("orders"), log.topic("refunds")
        tried: list[str] = []

        def fail(value: str, delivery: lakelog.Delivery[str]) -> None:
            tried.append(f"{delivery.topic} {value}")
            raise ValueError(value)

        for topic in (orders, refunds):
            topic.create(partitions=1)
            topic.publish_many(["a", "b"])
        soon, at_once = lakelog.Fixed(max=1, seconds=0.02), lakelog.Fixed(max=0)
        orders.subscribe(fail, group="billing", retries=soon, filter="value = 'a'", start_from="earliest")
        refunds.subscribe(fail, group="billing", retries=at_once, filter="", dead_letter=False, start_from="earliest")
        log.start()
        group = log.group("billing")
        eventually(lambda: group.lag() == 0, within=30, what="everything is finished")
        log.stop()
        assert sorted(tried) == ["orders a", "orders a", "refunds a", "refunds b"]
        assert [letter.offset for letter in orders.dead_letters("billing").list()] == [0]
        assert not [*refunds.dead_letters("billing").list()]

        other.topic("refunds").subscribe(fail, group="billing", retries=soon)
        with pytest.raises(GroupSettingsDiffer, match=r"in topic 'refunds' retries .*max=0.* wants .*max=1") as refused:
            other.start()
        assert (refused.value.group, refused.value.topic) == ("billing", "refunds")
        info = group.alter(topic="refunds", retries=soon)
        assert (info.settings.retries, info.settings.in_topic("refunds").retries) == (soon, soon)
        assert not group.alter(topic="refunds", inherit=True).settings.topics
