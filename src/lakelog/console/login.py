"""Login and logout. A login exchanges a token for a child token with its rights or fewer, which ends after 12 hours."""

from __future__ import annotations

from collections.abc import Iterable

from lakelog.client._async.lakelog import AsyncLakelog
from lakelog.console.codes import LoginCodes
from lakelog.console.page import Form
from lakelog.errors import InvalidRequest, NotAuthenticated
from lakelog.model.token import IssuedToken, Right, Token

ALL, LOOK, INSPECT = "all", "look", "inspect"
ACCESS = {
    ALL: "everything that the token may do",
    LOOK: "no changes",
    INSPECT: "no changes, and no messages",
}
"""The choices of the login page."""


def token_of(form: Form, codes: LoginCodes | None) -> str:
    """Return the token of the form, or of its one-time code."""
    if code := form.text("code"):
        token = None if codes is None else codes.take(code)
        if token is None:
            raise NotAuthenticated("This link was used before, or is older than a minute. Log in with a token.")
        return token
    token = form.text("token")
    if not token or not token.isascii() or not token.isprintable():
        raise NotAuthenticated("Enter a token. Make one with `lakelog tokens create`.")
    return token


async def log_in(log: AsyncLakelog, form: Form) -> IssuedToken:
    """Return a child of the client's token, for the session."""
    current = await log.tokens.current()
    if current is None:
        raise InvalidRequest("This server requires no token.")
    if current.parent is not None:
        raise InvalidRequest("A child token cannot open the console. Use a token of `lakelog tokens create`.")
    who = form.text("name")[:100]
    return await log.tokens.create(f"console of {who}" if who else "console", rights_of(current, form.text("access")))


def rights_of(token: Token, access: str) -> list[Right]:
    """Return the rights of a session."""
    allowed: Iterable[Right] = Right
    if access == LOOK:
        allowed = (Right.READ, Right.INSPECT, Right.METRICS)
    elif access == INSPECT:
        allowed = (Right.INSPECT, Right.METRICS)
    rights = [right for right in token.rights if right in allowed]
    if not rights:
        raise InvalidRequest(f"The token has none of the rights for this access: {', '.join(allowed)}.")
    return rights


async def log_out(log: AsyncLakelog) -> None:
    """Revoke the token of the session."""
    current = await log.tokens.current()
    if current is not None and current.parent is not None:
        await log.tokens.revoke(current.id)
