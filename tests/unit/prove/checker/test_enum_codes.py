"""The plain numbers are those of the enums."""

from __future__ import annotations

from prove.checker.enum_codes import MEMBERSHIP, OUTCOME, READER, VERB
from prove.history.tables import CallOutcome, MemberEvent, OwnerVerb, ReaderKind


def test_each_member_has_its_number() -> None:
    for numbers, kind in ((OUTCOME, CallOutcome), (READER, ReaderKind), (VERB, OwnerVerb), (MEMBERSHIP, MemberEvent)):
        assert vars(numbers) == {each.name: each.value for each in kind}
        assert all(type(number) is int for number in vars(numbers).values())
