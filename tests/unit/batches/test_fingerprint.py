"""Equal messages have equal hashes, and no two different ones do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lakelog.batches import body_hash, key_hash
from lakelog.model.message import Message
from tests.unit.batches.samples import NOW

SHORT = st.text("ab", max_size=2)
MESSAGES = st.builds(
    Message,
    key=st.none() | SHORT.map(str.encode),
    value=st.none() | SHORT.map(str.encode),
    headers=st.dictionaries(SHORT, SHORT, max_size=2),
    content_type=st.none() | SHORT,
    correlation_id=st.none() | SHORT,
)


@given(MESSAGES, MESSAGES)
def test_hashes_are_equal_when_the_messages_are(one: Message, other: Message) -> None:
    assert (body_hash(one) == body_hash(other)) == (one == other)


def test_the_order_of_headers_times_and_routing_do_not_matter() -> None:
    one = Message(value=b"v", headers={"a": "1", "b": "2"})
    retry = replace(one, headers={"b": "2", "a": "1"}, created_at=NOW, partition=3, idempotency_key="k")
    assert body_hash(one) == body_hash(retry)
    assert body_hash(replace(one, headers=None)) == body_hash(replace(one, headers={}))


def test_hashes_never_change() -> None:
    # They are stored: a retry after an upgrade must find what it wrote before.
    message = Message(key=b"k", value=b"v", headers={"a": "é"}, content_type="t", correlation_id="c")
    assert body_hash(message).hex() == "07299a2626529b961d33a7283910df71"
    assert key_hash("order-1").hex() == "56eea00bbcad2f0a2ca2cc13492405d7"
    assert len(key_hash("\ud800")) == 16
