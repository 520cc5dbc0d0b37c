"""Iceberg's REST catalog, read-only: tells engines where the tables of the caller's environment are.

It returns the metadata file that the catalog of Lakelog names, byte by byte, and needs no Iceberg library. Engines read
manifests and data from the object store, with credentials of their own.
"""

from __future__ import annotations

import msgspec

from lakelog.engine import Engine
from lakelog.errors import NotFound
from lakelog.model.names import check_name
from lakelog.server.calls import JSON_TYPE, Call, Handler, Response
from lakelog.wire import shapes
from lakelog.wire.operations import iceberg_catalog
from lakelog.wire.operations.iceberg_catalog import ROOT
from lakelog.wire.operations.operation import Operation

_SEPARATOR = "\x1f"
"""Iceberg's separator of the levels of a namespace in a path."""
_READ_ONLY = (
    "The Iceberg catalog of Lakelog is read-only: only `lakelog pipelines run iceberg` writes tables. Publish messages "
    "to change what they contain."
)
_TYPES = {
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchTableException",
    405: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}


class IcebergCatalogHandlers:
    """The handlers of the catalog's operations."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by the name of their operation."""
        return {
            iceberg_catalog.ICEBERG_CONFIG.name: self.config,
            iceberg_catalog.ICEBERG_NAMESPACES.name: self.namespaces,
            iceberg_catalog.ICEBERG_NAMESPACE.name: self.namespace,
            iceberg_catalog.ICEBERG_HAS_NAMESPACE.name: self.has_namespace,
            iceberg_catalog.ICEBERG_TABLES.name: self.tables,
            iceberg_catalog.ICEBERG_TABLE.name: self.table,
            iceberg_catalog.ICEBERG_HAS_TABLE.name: self.has_table,
        }

    async def config(self, call: Call) -> Response:
        return _json(shapes.IcebergConfig(endpoints=ENDPOINTS))

    async def namespaces(self, call: Call) -> Response:
        below = b"parent=" in call.asgi["query_string"]
        return _json(shapes.IcebergNamespaces(namespaces=[] if below else [[_own_namespace(call)]]))

    async def namespace(self, call: Call) -> Response:
        return _json(shapes.IcebergNamespace(namespace=_namespace(call)))

    async def has_namespace(self, call: Call) -> Response:
        _namespace(call)
        return Response(204, b"")

    async def tables(self, call: Call) -> Response:
        namespace = _namespace(call)
        found = await self._engine.iceberg.tables(call.scope)
        names = [shapes.IcebergIdentifier(namespace=namespace, name=each.name) for each in found]
        return _json(shapes.IcebergTables(identifiers=names))

    async def table(self, call: Call) -> Response:
        _namespace(call)
        location, metadata = await self._engine.iceberg.load(call.scope, _topic(call))
        call.hold(len(metadata))
        head = msgspec.json.encode({"metadata-location": location})
        body = b"".join((head[:-1], b',"metadata":', metadata, b',"config":{}}'))
        return Response(200, body, JSON_TYPE)

    async def has_table(self, call: Call) -> Response:
        _namespace(call)
        await self._engine.iceberg.find(call.scope, _topic(call))
        return Response(204, b"")


def is_iceberg(path: str) -> bool:
    """Return whether the path is one of Iceberg's catalog."""
    return path.startswith(f"{ROOT}/")


def iceberg_error(problem: Response) -> Response:
    """Return the response to a failed call, with the error in Iceberg's form beside ours."""
    content = msgspec.json.decode(problem.body)
    status = problem.status
    if status == 405:
        content["detail"] = _READ_ONLY
    kind = _TYPES.get(status, "ServiceFailureException" if status >= 500 else "BadRequestException")
    content["error"] = {"message": content["detail"], "type": kind, "code": status}
    return Response(status, msgspec.json.encode(content), *problem.headers)


def _endpoints() -> list[str]:
    rows = [each for each in vars(iceberg_catalog).values() if isinstance(each, Operation)]
    paths = {each: each.path.removeprefix(ROOT).replace("{topic}", "{table}") for each in rows}
    # Engines compare these texts. A catalog always has its configuration, so it is not listed.
    return [f"{each.method} /v1/{{prefix}}{path}" for each, path in paths.items() if path != "/config"]


ENDPOINTS = _endpoints()
"""The operations that engines may use, in Iceberg's words."""


def _json(value: msgspec.Struct) -> Response:
    return Response(200, msgspec.json.encode(value), JSON_TYPE)


def _own_namespace(call: Call) -> str:
    return f"{call.scope.project}.{call.scope.environment}"


def _namespace(call: Call) -> list[str]:
    """Return the levels of the namespace in the path; raise `NotFound` unless it is the caller's environment."""
    levels = call.parameters["namespace"].split(_SEPARATOR)
    if ".".join(levels) != _own_namespace(call):
        raise NotFound(f"This namespace does not exist. The namespace of this token is {_own_namespace(call)}.")
    return levels


def _topic(call: Call) -> str:
    return check_name("topic", call.parameters["topic"])
