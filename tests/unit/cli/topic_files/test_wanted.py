"""Files with topics and groups: what they mean, and errors that name the line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakelog.cli.topic_files.wanted import parse_wanted, read_wanted
from lakelog.errors import InvalidRequest
from lakelog.model.kinds import GroupKind, Order
from lakelog.model.retries import Exponential, Fixed


def test_a_file_of_topics_and_groups() -> None:
    found = parse_wanted(
        """
topics:
  orders:
    partitions: 16
    retention: {max_age: 7d, max_count: 1000, max_bytes: 10GiB}
    key_field: account
    idempotency_memory: 2h
    tags: [eu]
    metadata: {owner: team-a}
  refunds:
groups:
  billing:
    kind: lease
    order: partition
    filter: "value.total>100"
    retries: {max: 5, delay: 2s, max_delay: 1m, jitter: 0}
    dead_letter: false
    dead_letter_retention: {max_age: 30d, max_count: 7}
    assignor: range
    window: 10
    topics:
      orders: {start_from: earliest, filter: "", retries: {strategy: fixed, max: 1, delay: 5s}}
      refunds: {start_from: 2026-01-31T12:00:00Z}
  audit: {kind: cursor, topics: [orders]}
""",
        "f.yaml",
    )
    assert found.topics is not None and found.groups is not None
    assert found.topics["orders"].settings == {
        "partitions": 16,
        "retention.max_age": timedelta(days=7),
        "retention.max_count": 1000,
        "retention.max_bytes": 10 << 30,
        "key_field": "account",
        "idempotency_memory": timedelta(hours=2),
        "tags": ("eu",),
        "metadata": {"owner": "team-a"},
    }
    assert found.topics["refunds"].settings == {}
    billing = found.groups["billing"]
    assert billing.settings == {
        "order": Order.PARTITION,
        "filter": "value.total > 100",
        "retries": Exponential(max=5, base_seconds=2, max_seconds=60, jitter=0),
        "dead_letter": False,
        "dead_letter_retention.max_age": timedelta(days=30),
        "dead_letter_retention.max_count": 7,
        "assignor": "range",
        "window": 10,
    }
    assert billing.topics["orders"].settings == {"filter": "", "retries": Fixed(max=1, seconds=5)}
    assert billing.topics["orders"].start_from == "earliest"
    assert billing.topics["refunds"].start_from == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert (found.groups["audit"].kind, [*found.groups["audit"].topics]) == (GroupKind.CURSOR, ["orders"])


def test_null_is_the_default_and_an_omitted_setting_is_not_managed() -> None:
    found = parse_wanted("topics: {a: {retention: null, tags: null}, b: {retention: {max_age: null}}}", "f.yaml")
    assert found.groups is None and found.topics is not None
    assert found.topics["a"].settings == {
        "retention.max_age": None,
        "retention.max_count": None,
        "retention.max_bytes": None,
        "tags": (),
    }
    assert found.topics["b"].settings == {"retention.max_age": None}


def test_shared_settings_are_merged() -> None:
    found = parse_wanted("topics:\n  a: &x {partitions: 2, key_field: k}\n  b: {<<: *x, partitions: 3}\n", "f.yaml")
    assert found.topics is not None
    assert found.topics["b"].settings == {"partitions": 3, "key_field": "k"}


def test_an_empty_file_manages_nothing() -> None:
    found = parse_wanted("# nothing\n", "f.yaml")
    assert (found.topics, found.groups) == (None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topics:\n  a:\n    partitons: 3", "f.yaml:3: `topics.a.partitons` is not a known field. Did you mean `parti"),
        ("topic: {}", "f.yaml:1: `topic` is not a known field. Did you mean `topics`?"),
        ("topics:\n  a: {xyz: 1}", "Known fields: partitions, retention, key_field"),
        ("topics:\n  A: {}", "f.yaml:2: `topics.A`: Topic name 'A' is not valid"),
        ("topics:\n  a: {partitions: x}", "f.yaml:2: `topics.a.partitions` must be a whole number, not 'x'."),
        ("topics:\n  a: {partitions: true}", "must be a whole number, not True"),
        ("topics:\n  a: {partitions: 0}", "f.yaml:2: `topics.a`: `partitions` must be a whole number from 1 to 10000"),
        ("topics:\n\n  a: [x", "f.yaml:3: The file is not YAML: "),
        ("topics:\n  a:\n    tags: x", "f.yaml:3: `topics.a.tags` must be a list of texts."),
        ("topics:\n  a:\n    tags: [1]", "f.yaml:3: `topics.a.tags` must be a text, not 1; put it in quotes."),
        ("topics:\n  a: {retention: {max_age: 7}}", "`topics.a.retention.max_age`: '7' is not a duration; write it as"),
        ("topics:\n  a: {retention: {max_age: [7d]}}", "`topics.a.retention.max_age` must be a single value."),
        ("topics:\n  a: {retention: 7d}", "`topics.a.retention` must have fields"),
        ("topics:\n  a: {}\n  a: {}", "f.yaml:3: `a` is given twice."),
        ("topics:\n  a: {key_field: !!python/name:os.system x}", "f.yaml:2: `topics.a.key_field` cannot be read"),
        ("- topics", "f.yaml:1: The file must have fields"),
        ("groups:\n  g: {kind: leas}", "`groups.g.kind` must be one of lease, cursor, not 'leas'."),
        ("groups:\n  g: {retries: 5000}", "`groups.g.retries`: `max` must be a whole number from 0 to 1000, not 5000."),
        ("groups:\n  g: {retries: {strategy: x}}", "`groups.g.retries.strategy` must be exponential or fixed"),
        ("groups:\n  g: {retries: {strategy: fixed, jitter: 0}}", "fixed has no `max_delay` and no `jitter`"),
        ("groups:\n  g:\n    filter: value >", "f.yaml:3: `groups.g.filter`: The filter cannot be read at character 8"),
        ("groups:\n  g: {window: 0}", "`window` must be a whole number from 1 to 10000, not 0"),
        ("groups:\n  g: {topics: {a: {start_from: soon}}}", "`groups.g.topics.a.start_from`: 'soon' is not a time"),
    ],
)
def test_an_error_names_the_line_and_the_field(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_wanted(text, "f.yaml")
    assert said in caught.value.detail


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        read_wanted(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        read_wanted(tmp_path / "binary.yaml")
