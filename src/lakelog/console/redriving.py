"""Edits dead letters for a redrive, and redrives a part of them.

A redrive of many dead letters is made in parts, one for each request of the browser. Redriven dead letters are no
longer in the state dead, so that a repeated or interrupted redrive publishes none twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from lakelog.client._async.dead_letters import AsyncDeadLetters
from lakelog.console.page import Form
from lakelog.errors import InvalidRequest, LakelogError
from lakelog.model.dead_letters import DeadLetter, Repair
from lakelog.model.json_values import JSON, is_json
from lakelog.model.masks import MASK, Masks

PART = 1000
"""The most dead letters that one request redrives."""
SAMPLES = 20
EDITS = ("none", "set", "remove", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of the values of dead letters.

    Attributes:
        kind: "none" redrives values unchanged; "set" sets a field; "remove" removes a field; "replace" replaces all.
        path: The names of the field, from the outermost on.
        value: The new value of the field, or of the whole message, as JSON.
    """

    kind: str = "none"
    path: Sequence[str] = ()
    value: Any = None

    def apply(self, letter: DeadLetter) -> Repair | None:
        """Return the change of a dead letter; None if it is not changed.

        Raises:
            InvalidRequest: If the value is not a JSON object, and the edit is about a field.
        """
        if self.kind == "none":
            return None
        if self.kind == "replace":
            encoded = msgspec.json.encode(self.value)
            return None if encoded == letter.raw else Repair(value=encoded, content_type=JSON)
        before = _object_of(letter)
        after = _with(before, self.path, self) if self.kind == "set" else _without(before, self.path)
        return None if after == before else Repair(value=msgspec.json.encode(after), content_type=letter.content_type)


def edit_of(form: Form) -> Edit:
    """Return the edit that a form describes."""
    kind = form.text("edit") or "none"
    if kind not in EDITS:
        raise InvalidRequest(f"The edit must be one of {', '.join(EDITS)}, not '{kind[:40]}'.")
    if kind == "none":
        return Edit()
    path: Sequence[str] = ()
    if kind in ("set", "remove"):
        path = form.required("field").split(".")
        if not all(path):
            raise InvalidRequest("The field must be a name, or names with dots between them, such as customer.id.")
    value: Any = None
    if kind in ("set", "replace"):
        text = form.required("value")
        if MASK in text:
            raise InvalidRequest(f"The new value has {MASK}, the sign of a masked field. Set or remove single fields.")
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f'The new value is not JSON: {error}. Write a text as "text".') from error
    return Edit(kind=kind, path=path, value=value)


def _object_of(letter: DeadLetter) -> dict[str, Any]:
    try:
        found = (
            msgspec.json.decode(letter.raw or b"") if is_json(letter.content_type) or not letter.content_type else None
        )
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict):
        raise InvalidRequest(f"The value of dead letter {letter.id} is not a JSON object, so it has no fields.")
    return found


def _with(value: Mapping[str, Any], path: Sequence[str], edit: Edit) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {**value, first: edit.value}
    inner = value.get(first)
    return {**value, first: _with(inner if isinstance(inner, dict) else {}, rest, edit)}


def _without(value: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    first, *rest = path
    if first not in value:
        return dict(value)
    if not rest:
        return {name: each for name, each in value.items() if name != first}
    inner = value[first]
    return {**value, first: _without(inner, rest)} if isinstance(inner, dict) else dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A dead letter before and after an edit.

    Attributes:
        letter: The dead letter.
        masks: The masks of its topic.
        repair: The change; None if there is none.
        refusal: Why the edit cannot be made; empty if it can.
    """

    letter: DeadLetter
    masks: Masks
    repair: Repair | None = None
    refusal: str = ""

    @property
    def before(self) -> str:
        """The value as text, as people see it."""
        return _show(self.masks.value(self.letter.raw))

    @property
    def after(self) -> str | None:
        """The value that would be published, as people see it; None if it stays."""
        return None if self.repair is None else _show(self.masks.value(self.repair.value))


def sample_of(letter: DeadLetter, edit: Edit, masks: Masks) -> Sample:
    """Return the dead letter before and after the edit. Its texts are made when they are shown."""
    try:
        return Sample(letter=letter, masks=masks, repair=edit.apply(letter))
    except InvalidRequest as error:
        return Sample(letter=letter, masks=masks, refusal=error.detail)


def _show(raw: bytes | None) -> str:
    if raw is None:
        return "(no value)"
    try:
        return msgspec.json.format(raw, indent=2).decode()[:4000]
    except msgspec.DecodeError:
        return raw.decode(errors="replace")[:4000]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to redrive.

    Attributes:
        edit: The change of each dead letter.
        until: Dead letters that died later stay: among them are those that were redriven and died again.
        most: The most dead letters of a part.
        force: Whether to redrive also those that were redriven three times before.
    """

    edit: Edit
    until: datetime
    most: int = PART
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How far a redrive got.

    Attributes:
        redriven: How many dead letters were published again.
        refused: How many were refused; they stay dead letters.
        reason: The reason of the first refusal; empty if there was none.
        after: Where the next part begins; empty at the end.
        ids: The ids of some that were published again.
    """

    redriven: int = 0
    refused: int = 0
    reason: str = ""
    after: str = ""
    ids: Sequence[str] = ()


async def redrive_part(letters: AsyncDeadLetters, plan: Plan, done: Tally) -> Tally:
    """Redrive the next dead letters. A dead letter that cannot be edited is refused, and stays.

    Refused dead letters are passed by: the next part begins behind the last dead letter that this one looked at.
    """
    page = await letters.page(None, done.after or None, plan.most)
    repaired: dict[str, Repair] = {}
    chosen: list[str] = []
    tally = replace(done, after=page.next or "")
    for letter in page.letters:
        if letter.at > plan.until:
            continue
        try:
            repair = plan.edit.apply(letter)
        except InvalidRequest as error:
            tally = replace(tally, refused=tally.refused + 1, reason=tally.reason or error.detail)
            continue
        chosen.append(letter.id)
        if repair is not None:
            repaired[letter.id] = repair
    if not chosen:
        return tally
    try:
        # A repeated call would count what the first call redrove as refused. The next part leaves it out.
        result = await letters.redrive_these(chosen, repaired=repaired, force=plan.force, repeat=False)
    except LakelogError as error:
        if error.code != "redrive_refused":
            raise
        return replace(tally, refused=tally.refused + len(chosen), reason=tally.reason or error.detail)
    refusal = result.refusals[0].reason if result.refusals else ""
    return replace(
        tally,
        redriven=tally.redriven + result.redriven,
        refused=tally.refused + result.refused,
        reason=tally.reason or refusal,
        ids=tally.ids or result.ids,
    )
