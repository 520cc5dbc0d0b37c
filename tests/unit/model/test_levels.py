"""Feature levels, and the forms that the first level has.

A form that is added later needs a level of its own. Until the installation has that level, servers must not write the
form: this test then also runs the writer at the lower level.
"""

from __future__ import annotations

from typing import get_args

from lakelog import batches
from lakelog.coordinator import membership
from lakelog.coordinator.leasing import codec
from lakelog.coordinator.leasing.events import AnyEvent
from lakelog.model.levels import SUPPORTED, FeatureLevel, unsupported

EVENTS = {
    1: "token owner request until ranges keys suspect alone expires",
    2: "frontier skipped filtered expired expires",
    3: "token verb ranges filtered",
    4: "token verb waits back",
    5: "token offset discarded",
    6: "token until alone reissued",
    7: "offsets",
    8: "log_start",
    9: "epoch offset",
    10: "offset",
    11: "generation",
    12: "count",
    13: "details blocks",
}
MEMBERS = [
    "member_id topics host session_ms joined_ms assigned promised revoked fence",
    "phase generation members counts rebalances last_rebalance_ms waited_ms waiting_since_ms",
]
COLUMNS = (
    "key value headers content_type correlation_id producer sequence created_at expires_at target_group lineage "
    "idempotency_key schema_id encryption_key_id origin"
)


def test_levels_are_consecutive_and_explained() -> None:
    assert [*FeatureLevel] == list(range(1, SUPPORTED + 1))
    assert "level 9, and this version of Lakelog supports levels up to" in unsupported(9)


def test_journal_events_are_those_of_the_first_level_and_filtered() -> None:
    """Answers that write `filtered` as true are refused below the third level; versions without it ignore false."""
    written = {each.__struct_config__.tag: " ".join(each.__struct_fields__) for each in get_args(AnyEvent)}
    assert written == EVENTS
    assert codec.FORMAT == 2


def test_documents_of_members_are_those_of_the_first_level() -> None:
    written = [" ".join(each.__struct_fields__) for each in (membership.Member, membership.MembershipState)]
    assert written == MEMBERS
    assert membership.FORMAT == 1


def test_stored_and_staged_batches_are_those_of_the_first_level() -> None:
    assert " ".join(column.name for column in batches.COLUMNS) == COLUMNS
    assert batches.FORMAT == 1
