"""Options of `format("lakelog")`: which names are known where, and what the error about another says."""

from __future__ import annotations

import pytest

from lakelog.errors import InvalidRequest
from lakelog.spark.options import DEAD_LETTER_OPTIONS, STREAM_OPTIONS, WRITE_OPTIONS, is_stream, known_options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"grup": "x"}, r"Unknown option `grup` for spark.read and spark.readStream. Did you mean `group`\? Known"),
        ({"zebra": "x"}, "Unknown option `zebra` for spark.read and spark.readStream. Known options: topic, url"),
        ({"writeid": "x"}, "It is an option of a write."),
        ({"path": "orders"}, r"A topic has no path: name it with .option\('topic', 'orders'\)."),
        ({"since": "1 day", "group": "g"}, "`since` is only for spark.read, and option `group` only for spark.readStr"),
    ],
)
def test_a_load_with_a_wrong_option_is_refused_in_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        is_stream({"topic": "orders", **options})
    assert "\n" not in caught.value.detail


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"topic": "orders"}, False),
        ({"topic": "orders", "since": "1 day", "store.endpoint": "http://x"}, False),
        ({"topic": "orders", "pinned": "{}"}, False),
        ({"topic": "orders", "STARTOFFSETS": "{}"}, False),
        ({"topic": "orders", "Group": "g"}, True),
    ],
)
def test_options_of_streams_only_tell_a_stream(options: dict[str, str], expected: bool) -> None:
    assert is_stream(options) is expected


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (WRITE_OPTIONS, {"writeld": "x"}, "Did you mean `writeId`"),
        (WRITE_OPTIONS, {"group": "x"}, "It is an option of spark.readStream."),
        (STREAM_OPTIONS, {"since": "x"}, "It is an option of spark.read."),
        (DEAD_LETTER_OPTIONS, {"until": "x"}, "Known options: topic, deadLetters, url, token."),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(
    names: tuple[str, ...], options: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        known_options(options, names, of="this")
