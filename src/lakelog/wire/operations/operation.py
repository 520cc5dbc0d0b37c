"""An operation of the API: one row of the table from which the server, the clients and the documents are derived."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import NODEFAULT, Struct

from lakelog.model.structs import Request
from lakelog.model.token import Right
from lakelog.wire.redaction import Redaction
from lakelog.wire.reply_form import ReplyForm

JSON = "application/json"

Asked = TypeVar("Asked")
Found = TypeVar("Found")
Body = Mapping[str, tuple[type, ...]]
"""Media types and the structs that they may carry; no struct means bytes."""


class Public(Enum):
    """The rights of an operation that needs no token."""

    PUBLIC = "public"


PUBLIC = Public.PUBLIC
Rights = frozenset[Right] | Public
"""The rights of which a caller needs one."""
READ, PUBLISH, MANAGE, INSPECT, METRICS = (
    frozenset({right}) for right in (Right.READ, Right.PUBLISH, Right.MANAGE, Right.INSPECT, Right.METRICS)
)
SEE = READ | INSPECT
"""The rights of operations that show no message, or hide it from callers that may only inspect."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query."""

    name: str
    schema: Mapping[str, object]
    description: str
    required: bool = False


NAME: Mapping[str, object] = {"type": "string", "pattern": "^[a-z0-9._-]{1,120}$"}


def number(lowest: int, highest: int, default: int | None = None) -> dict[str, object]:
    """Return the schema of a whole number."""
    schema: dict[str, object] = {"type": "integer", "minimum": lowest, "maximum": highest}
    return schema if default is None else {**schema, "default": default}


def text(longest: int) -> dict[str, object]:
    """Return the schema of a string that is not empty."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """The bodies of an operation with its own handler, by media type and status.

    Operations that carry bytes (publish, fetch, consume, answers) have this instead of a request and a reply.
    """

    replies: Mapping[int, Body]
    body: Body | None = None
    query: Sequence[Parameter] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The record of an operation in the audit, and its line in the audit log.

    Attributes:
        text: The change, with fields of the request in braces.
        hidden: Fields of the request that the line does not show.
        counted: Fields of the request of which the line shows the number of items.
        result: A field of the reply that the line shows as `messages`.
        made: A field of the reply that the line shows under its own name.
        only_with: A field of the request without which the call is not audited.
        in_cells: Whether the change is made in cells or files, and not in one transaction of the catalog. Its record is
            written before it begins, and finished at its end.
    """

    text: str
    hidden: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    result: str | None = None
    made: str | None = None
    only_with: str | None = None
    in_cells: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation(Generic[Asked, Found]):
    """One operation.

    Attributes:
        name: The name, in metrics, log lines and the OpenAPI document.
        method: The HTTP method.
        path: The HTTP path; the names in braces are fields of the request.
        rights: The rights of which a caller needs one. A server does not start if an operation has none.
        summary: One line for the OpenAPI document.
        request: The struct that holds the fields of the path, the query (GET) and the JSON body (other methods). None
            if the handler decodes the call itself.
        reply: The struct of the JSON reply. None if there is no body, or if the handler encodes it.
        form: The JSON of the reply, if it differs from the reply.
        requires_body: Whether the body must be sent although each of its fields has a default.
        status: The status of a reply with a body. One without a body has 204.
        is_read: Whether the operation changes nothing although its method is not GET.
        is_repeatable: Whether a client may repeat the call if the outcome of the first one is unknown.
        problems: Statuses of failures, besides those that every operation may have.
        example: An example of the JSON body.
        audit: The audit record, for operations that change something.
        home: The fields of the request by which the server that should handle it is found.
        waits: Whether the request has a `wait_ms` during which the reply may be delayed.
        media: The bodies, for operations with their own handler.
        alias_of: The name of the operation of which this is a second path.
        redaction: The parts that a caller with the right to inspect, and without the right to read, may not see.
    """

    name: str
    method: str
    path: str
    rights: Rights | None
    summary: str
    request: type[Asked] | None = None
    reply: type[Found] | None = None
    form: ReplyForm[Found, Struct] | None = None
    requires_body: bool = False
    status: int = 200
    is_read: bool = False
    is_repeatable: bool = True
    problems: Sequence[int] = ()
    example: object = None
    audit: Audit | None = None
    home: tuple[str, ...] = ()
    waits: bool = False
    media: Media | None = None
    alias_of: str | None = None
    redaction: Redaction | None = None

    @property
    def statuses(self) -> tuple[int, ...]:
        """Return the statuses of replies that are not failures."""
        if self.media is not None:
            return tuple(self.media.replies)
        return (204,) if self.reply is None else (self.status,)

    @property
    def reply_shape(self) -> type | None:
        """Return the struct of the reply's JSON, or None if there is no body."""
        return self.reply if self.form is None else self.form.shape

    @property
    def only_reads(self) -> bool:
        """Return whether the operation changes nothing, so that a lost reply leaves nothing unknown."""
        return self.is_read or self.method == "GET"

    @cached_property
    def path_fields(self) -> tuple[str, ...]:
        """Return the names in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @cached_property
    def rest(self) -> type[Struct] | None:
        """Return the struct of the request's fields that are not in the path, or None if there is no such field."""
        if self.request is None:
            return None
        fields = [each for each in _fields(self.request) if each.name not in self.path_fields]
        if not fields:
            return None
        if len(fields) == len(_fields(self.request)):
            return self.request  # type: ignore[return-value]  # it is a Struct: only those have fields
        return _without(self.request, self.path_fields)  # type: ignore[arg-type]  # classes are hashable

    @cached_property
    def needs_body(self) -> bool:
        """Return whether the body cannot be left out: it is required, or a field has no default."""
        if self.requires_body:
            return True
        fields = _fields(self.rest) if self.rest is not None and self.method != "GET" else ()
        return any(each.default is NODEFAULT and each.default_factory is NODEFAULT for each in fields)

    def target(self, request: Any) -> str:
        """Return the path of a request."""
        fields = {name: quote(str(getattr(request, name)), safe="") for name in self.path_fields}
        return self.path.format(**fields)

    def without_path(self, request: Any) -> Struct | None:
        """Return the fields of a request that are not in the path, as `rest`."""
        if self.rest is None or isinstance(request, self.rest):
            return None if self.rest is None else request
        return self.rest(**{each.name: getattr(request, each.name) for each in _fields(self.rest)})

    def with_path(self, path: Mapping[str, str], rest: Struct | None) -> Asked:
        """Return the request with the fields of the path and the other fields."""
        assert self.request is not None
        if not self.path_fields and rest is not None:
            return rest  # type: ignore[return-value]  # without fields in the path, the rest is the request
        others = {} if rest is None else {each.name: getattr(rest, each.name) for each in _fields(type(rest))}
        return self.request(**{name: path[name] for name in self.path_fields}, **others)


def read(
    name: str, path: str, summary: str, request: type[Asked], reply: type[Found] | None, **more: Any
) -> Operation[Asked, Found]:
    """Return an operation that needs the right to read; by default a GET that fails with 404 only."""
    fixed = {"method": "GET", "rights": READ, "problems": (404,), **more}
    return Operation(name=name, path=path, summary=summary, request=request, reply=reply, **fixed)


def manage(
    name: str, path: str, summary: str, request: type[Asked], reply: type[Found] | None, **more: Any
) -> Operation[Asked, Found]:
    """Return an operation that needs the right to manage; by default a POST that fails with 404 or 409."""
    fixed = {"method": "POST", "rights": MANAGE, "problems": (404, 409), **more}
    return Operation(name=name, path=path, summary=summary, request=request, reply=reply, **fixed)


def _fields(struct: type) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(struct)


@cache
def _without(request: type[Any], path_fields: tuple[str, ...]) -> type[Struct]:
    """Return the struct without the fields of the path; the same one for all operations with that request."""
    fields = [each for each in _fields(request) if each.name not in path_fields]
    return msgspec.defstruct(
        request.__name__,
        [(each.name, each.type, _default(each)) for each in fields],
        bases=(Request,),
        module=request.__module__,
        namespace={"__doc__": request.__doc__},
        frozen=True,
        kw_only=True,
        omit_defaults=True,
        forbid_unknown_fields=True,
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is NODEFAULT and field.default_factory is NODEFAULT:
        return msgspec.field(name=field.encode_name)
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory, name=field.encode_name)
    return msgspec.field(default=field.default, name=field.encode_name)
