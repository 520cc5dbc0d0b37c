"""Rules that protect every page: the response headers, the same-origin check of changes, and the session cookie."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from lakelog.client.connecting.env_file import is_loopback
from lakelog.errors import NotAllowed

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
SESSION_SECONDS = 12 * 3600
_COOKIE = "lakelog-console"
_SAFE = frozenset({"GET", "HEAD"})


def check_same_origin(method: str, headers: Mapping[str, str]) -> None:
    """Raise `NotAllowed` if a request that may change something comes from another website.

    Browsers send `Sec-Fetch-Site` to hosts with TLS and to this machine, and `Origin` with every POST. A request
    without both is not from a current browser, and is refused.
    """
    if method in _SAFE:
        return
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        is_same = site == "same-origin"
    else:
        is_same = origin is not None and urlsplit(origin).netloc == headers.get("host")
    if not is_same:
        raise NotAllowed("This request did not come from a page of the console. Open the console and try again.")


def check_name_of_machine(host: str) -> None:
    """Raise `NotAllowed` unless the host is this machine. A website can let its own name point at this machine."""
    if not is_loopback(f"http://{host}"):
        raise NotAllowed("Without authentication, the console answers to localhost only. Check the URL.")


def is_secure(request: Request) -> bool:
    """Return whether the browser uses TLS, to this process or to a proxy before it.

    A caller that claims TLS without using it only makes its own browser keep the cookie from this process.
    """
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


def session_of(request: Request) -> str | None:
    """Return the token of the session, which the cookie carries."""
    return request.cookies.get(_cookie_name(request)) or None


def set_session(request: Request, response: Response, secret: str) -> None:
    """Begin a session in the browser."""
    response.set_cookie(
        _cookie_name(request),
        secret,
        max_age=SESSION_SECONDS,
        path="/",
        secure=is_secure(request),
        httponly=True,
        samesite="lax",
    )


def end_session(request: Request, response: Response) -> None:
    """Remove the session from the browser."""
    secure = is_secure(request)
    response.delete_cookie(_cookie_name(request), path="/", secure=secure, httponly=True, samesite="lax")


def _cookie_name(request: Request) -> str:
    # With this prefix, a browser accepts the cookie only with Secure, and from no other host.
    return f"__Host-{_COOKIE}" if is_secure(request) else _COOKIE
