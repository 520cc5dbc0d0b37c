"""The operations of Iceberg's REST catalog: how engines find the tables of topics. Paths and bodies are Iceberg's.

A catalog has the environment of the token as its only namespace, and is read-only.
"""

from __future__ import annotations

from typing import Any

from lakelog.wire import shapes
from lakelog.wire.operations.operation import JSON, READ, Body, Media, Operation, Parameter

ROOT = "/iceberg/v1"
_NAMESPACE = f"{ROOT}/namespaces/{{namespace}}"
_TABLE = f"{_NAMESPACE}/tables/{{topic}}"
_WAREHOUSE = Parameter("warehouse", {"type": "string"}, "Ignored: a token has one warehouse.")
_PARENT = Parameter("parent", {"type": "string"}, "Only namespaces below this one: the list is empty then.")
_SNAPSHOTS = Parameter("snapshots", {"enum": ["all", "refs"]}, "Ignored: all snapshots are returned.")
_PAGES = (
    Parameter("pageToken", {"type": "string"}, "Ignored: there is one page."),
    Parameter("pageSize", {"type": "integer"}, "Ignored: there is one page."),
)


def _catalog(name: str, path: str, summary: str, shape: type, *query: Parameter, **more: Any) -> Operation[Any, Any]:
    replies: dict[int, Body] = {200: {JSON: (shape,)}}
    media = Media(replies=replies, query=query)
    return Operation(name=name, method="GET", path=path, rights=READ, summary=summary, media=media, **more)


def _exists(name: str, path: str, summary: str) -> Operation[Any, Any]:
    media = Media(replies={204: {}})
    return Operation(name=name, method="HEAD", path=path, rights=READ, summary=summary, media=media, problems=(404,))


ICEBERG_CONFIG = _catalog(
    "iceberg_config", f"{ROOT}/config", "Iceberg: configuration of the catalog", shapes.IcebergConfig, _WAREHOUSE
)
ICEBERG_NAMESPACES = _catalog(
    "iceberg_namespaces",
    f"{ROOT}/namespaces",
    "Iceberg: list namespaces",
    shapes.IcebergNamespaces,
    _PARENT,
    *_PAGES,
)
ICEBERG_NAMESPACE = _catalog(
    "iceberg_namespace", _NAMESPACE, "Iceberg: show a namespace", shapes.IcebergNamespace, problems=(404,)
)
ICEBERG_HAS_NAMESPACE = _exists("iceberg_has_namespace", _NAMESPACE, "Iceberg: check that a namespace exists")
ICEBERG_TABLES = _catalog(
    "iceberg_tables",
    f"{_NAMESPACE}/tables",
    "Iceberg: list tables",
    shapes.IcebergTables,
    *_PAGES,
    problems=(404,),
)
ICEBERG_TABLE = _catalog(
    "iceberg_table", _TABLE, "Iceberg: load a table", shapes.IcebergLoaded, _SNAPSHOTS, problems=(404,)
)
ICEBERG_HAS_TABLE = _exists("iceberg_has_table", _TABLE, "Iceberg: check that a table exists")
