"""Errors between a client and its server: a short reason, and what to do."""

from __future__ import annotations

import os
import re
import ssl

from lakelog.client._runtime import SocketAddress
from lakelog.errors import ConfigurationError, LakelogError, OutcomeUnknown, Unavailable

_ERRNO = re.compile(r"\[Errno (\d+)\]")


def cannot_connect(address: SocketAddress, exc: OSError) -> LakelogError:
    """Return the error for a connection that was not made: nothing was sent."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return ConfigurationError(f"The certificate of {address} is not trusted: {exc.verify_message}.")
    if isinstance(exc, ssl.SSLError) and exc.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return ConfigurationError(f"The server at {address} does not use TLS. Use http:// instead of https://.")
    reason = reason_of(exc)
    return Unavailable(f"Cannot connect to {address}: {reason}.", unreachable="server", reason=reason)


def no_answer(address: SocketAddress, exc: BaseException, seconds: float) -> OutcomeUnknown:
    """Return the error for a request that was sent, or partly, and whose answer did not arrive."""
    if isinstance(exc, TimeoutError):
        return OutcomeUnknown(f"The server at {address} did not answer within {seconds:.1f} s.")
    if isinstance(exc, ValueError):
        return OutcomeUnknown(f"The answer of the server at {address} is not valid HTTP: {exc}.")
    return OutcomeUnknown(f"The connection to {address} was lost before the answer arrived: {reason_of(exc)}.")


def reason_of(exc: BaseException) -> str:
    """Return why a connection failed, such as 'connection refused'."""
    if isinstance(exc, TimeoutError):
        return "it timed out"
    # asyncio replaces the operating system's text, or joins several failures. Threads get the text itself.
    if not isinstance(exc, ssl.SSLError) and (number := _ERRNO.search(str(exc))):
        return os.strerror(int(number[1])).lower()
    text = str(getattr(exc, "strerror", None) or exc).rstrip(".")
    return text[0].lower() + text[1:] if text else type(exc).__name__
