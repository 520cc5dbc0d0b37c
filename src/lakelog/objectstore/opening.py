"""Opens an object store by its URL: `file:///folder`, `s3://bucket/prefix` or `memory://`.

Further settings of S3 come from the options, or else from the environment (AWS_*). Timeouts and retries are set only
here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from lakelog.errors import ConfigurationError
from lakelog.objectstore.store import LocalObjectStore, ObjectStore

if TYPE_CHECKING:
    from obstore.store import S3Store

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_ENDPOINTS = ("aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")

# A segment is written in one request, so that it exists whole or not at all: 256 MiB in two minutes is 2 MiB/s.
_CLIENT: dict[str, Any] = {"timeout": timedelta(seconds=120), "connect_timeout": timedelta(seconds=5)}
_RETRIES: dict[str, Any] = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


def open_store(url: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """Open the store at `url` without sending a request to it.

    The options of S3 have obstore's names (`endpoint`, `access_key_id`, `region`, …), plus `timeout` (seconds) and
    `max_retries`. Each `memory://` is a separate store.
    """
    scheme, place = _parsed(url)
    _check_package()
    if scheme == "file":
        return _local(url, Path(place))
    if scheme == "s3":
        bucket, _, prefix = place.partition("/")
        return ObjectStore(url, _s3(bucket, prefix, dict(options or {})))
    from obstore.store import MemoryStore

    return ObjectStore(url, MemoryStore())


def check_shared(url: str) -> None:
    """Raise `ConfigurationError` if processes cannot share the object store. No request is sent to the store.

    The function checks the form of the URL, the name of a bucket, the folder of `file://` and whether obstore is
    installed. It does not create the folder.
    """
    scheme, place = _parsed(url)
    if scheme == "memory":
        raise _unsupported(url)
    _check_package()
    if scheme == "file":
        _check_folder(Path(place))


def _parsed(url: str) -> tuple[str, str]:
    """Return the scheme, and the folder or the bucket with its prefix."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _unsupported(url) from None
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return "file", unquote(parts.path)
    if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc):
        return "s3", f"{parts.netloc}/{parts.path.strip('/')}"
    if parts.scheme == "memory":
        return "memory", ""
    raise _unsupported(url)


def _unsupported(url: str) -> ConfigurationError:
    return ConfigurationError(
        f"The object store {url!r} is not supported. Use file:///folder or s3://bucket/prefix.", url=url
    )


def _check_package() -> None:
    try:
        import obstore.store  # noqa: F401
    except ImportError as exc:
        raise ConfigurationError(
            "An object store needs the package obstore. Install it with: pip install 'lakelog[s3]'"
        ) from exc


def _check_folder(folder: Path) -> None:
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if not existing.is_dir():
        raise ConfigurationError(f"The object store {folder} is not a folder: {existing} is a file.")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"The object store {folder} cannot be used: this user may not read and write {existing}."
        )


def _local(url: str, folder: Path) -> ObjectStore:
    from obstore.store import LocalStore

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(f"The folder of {url} cannot be created: {exc.strerror}.", url=url) from exc
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
