"""S24: texts that a tenant of another project recognises as foreign."""

from __future__ import annotations

import pytest

from prove.lab.load.other_tenant import MINE, has_other_messages, is_foreign

WORDS = ["mailing", "producer-"]


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ('{"groups":["billing"]}', "/v1/groups", False),
        ('{"groups":["billing","mailing"]}', "/v1/groups", True),
        ("There is no group 'mailing'.", "/v1/groups/mailing", False),
        ("Message 'producer-3-17 good' of group 'mailing' is dead.", "/v1/groups/mailing", True),
    ],
)
def test_S24_a_name_is_foreign_unless_it_was_asked_for(text: str, path: str, found: bool) -> None:
    assert is_foreign(text, path, WORDS) is found


def test_S24_a_message_that_it_did_not_publish_is_foreign() -> None:
    assert not has_other_messages({"messages": [{"value": f"{MINE} stranger-1-1"}]})
    assert has_other_messages({"messages": [{"value": f"{MINE} stranger-1-1"}, {"value": "k1 good"}]})
    assert (
        not has_other_messages({"code": "topic_not_found"})
        and not has_other_messages({"messages": 7})
        and not has_other_messages(None)
    )
