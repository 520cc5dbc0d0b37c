"""From a URL to an object store: `file:///folder`, `s3://bucket/prefix` or `memory://`.

What S3 needs beside the URL comes from the options, and where they are silent from the environment (AWS_*). Times and
retries are set here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from lakelog.errors import ConfigurationError
from lakelog.objectstore.local import LocalObjectStore
from lakelog.objectstore.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import S3Store

_ACCEPTED = "use file:///folder, s3://bucket/prefix or memory://"
_ENDPOINTS = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")

# A whole segment goes in one request, so that it is there wholly or not at all: 256 MiB in two minutes is 2 MiB/s.
_CLIENT: dict[str, Any] = {"timeout": timedelta(seconds=120), "connect_timeout": timedelta(seconds=5)}
_RETRIES: dict[str, Any] = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


def open_store(url: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at `url`. S3's options have obstore's names: `endpoint`, `access_key_id`, `region`, ….

    `timeout` (seconds) and `max_retries` are options too. Nothing is asked of the store yet. Each `memory://` is a
    store of its own.
    """
    parts = urlsplit(url)
    try:
        import obstore.store  # noqa: F401
    except ImportError as exc:
        raise ConfigurationError("An object store needs the package obstore; install lakelog[s3].") from exc
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return _local(url, Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return ObjectStore(url, _s3(parts.netloc, parts.path.strip("/"), dict(options or {})))
    if parts.scheme == "memory":
        from obstore.store import MemoryStore

        return ObjectStore(url, MemoryStore())
    raise ConfigurationError(f"{url!r} is no object store; {_ACCEPTED}.", url=url)


def _local(url: str, folder: Path) -> ObjectStore:
    from obstore.store import LocalStore

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(f"The folder of {url} cannot be made: {exc.strerror}.", url=url) from exc
    return LocalObjectStore(url, LocalStore(folder), folder)


def _s3(bucket: str, prefix: str, options: dict[str, str]) -> S3Store:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    client: Any = dict(_CLIENT)
    retries: Any = dict(_RETRIES)
    if "timeout" in options:
        client["timeout"] = timedelta(seconds=float(options.pop("timeout")))
    if "max_retries" in options:
        retries["max_retries"] = int(options.pop("max_retries"))
    if _endpoint(options).startswith("http://"):
        client["allow_http"] = True
    try:
        return S3Store(
            bucket, prefix=prefix or None, config=cast(Any, options), client_options=client, retry_config=retries
        )
    except (BaseError, ValueError) as exc:
        raise ConfigurationError(f"The options of the object store cannot be used: {exc}") from exc


def _endpoint(options: Mapping[str, str]) -> str:
    lowered = {name.lower(): text for name, text in options.items()}
    given = next((lowered[name] for name in _ENDPOINTS if name in lowered), None)
    if given is not None:
        return given
    return next((os.environ[name.upper()] for name in _ENDPOINTS[:3] if name.upper() in os.environ), "")
