"""Chooses the media type of a response from the Accept header (RFC 9110, without parameters other than q)."""

from __future__ import annotations

from collections.abc import Collection

from lakelog.server.calls import HttpError


def choose(accept: bytes | None, offered: Collection[str]) -> str:
    """Return the offered type that the caller prefers, the first among equals; raise 406 if it accepts none."""
    if accept is None:
        return next(iter(offered))
    ranges = [_range(part) for part in accept.decode("latin-1").split(",") if part.strip()]
    best, most = None, 0.0
    for media_type in offered:
        liked = _liked(media_type, ranges)
        if liked > most:
            best, most = media_type, liked
    if best is None and ranges:
        raise HttpError(406, f"Accept one of {', '.join(offered)}.")
    return best or next(iter(offered))


def _range(part: str) -> tuple[str, float]:
    name, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                quality = min(1.0, max(0.0, float(parameter[2:])))
            except ValueError:
                quality = 0.0
    # A quality that is not a number counts as zero.
    return name, quality if quality == quality else 0.0


def _liked(media_type: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific matching range."""
    for pattern in (media_type, media_type.partition("/")[0] + "/*", "*/*"):
        for name, quality in ranges:
            if name == pattern:
                return quality
    return 0.0
