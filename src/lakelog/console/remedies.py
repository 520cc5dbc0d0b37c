"""Turns the remedies of a stuck group into forms of the console."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from lakelog.model.stuck import Remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A form that carries out a remedy.

    Attributes:
        path: The path of the action, below the console.
        fields: The hidden fields.
    """

    path: str
    fields: Mapping[str, str]


_VERBS = {("POST", "resume"), ("POST", "seek"), ("POST", "skip")}


def button_of(group: str, remedy: Remedy) -> Button | None:
    """Return the form of a remedy; None if the remedy lies outside Lakelog."""
    call = remedy.http
    if call is None:
        return None
    start = f"/v1/groups/{quote(group, safe='')}"
    if not call.path.startswith(start):
        return None
    verb = call.path.removeprefix(start).strip("/")
    if (call.method, verb) in _VERBS:
        path = f"groups/{group}/{verb}"
    elif (call.method, verb) == ("PATCH", ""):
        path = f"groups/{group}/alter"
    else:
        return None
    return Button(path=path, fields={name: _text(value) for name, value in call.body.items()})


def _text(value: str | int | float | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
