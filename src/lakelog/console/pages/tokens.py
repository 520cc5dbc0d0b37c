"""Child tokens: lists, makes and revokes them.

The session has a child token, which cannot have children. A new token is therefore made with a token that the viewer
enters, and that the console does not keep.
"""

from __future__ import annotations

from lakelog.console.login import token_of
from lakelog.console.page import Action, Form, Page, Shown, Values, View
from lakelog.errors import InvalidRequest
from lakelog.model.token import Right

MOST_HOURS = 12


async def _show(view: View) -> Values:
    tokens = await view.log.tokens.list()
    newest = sorted(tokens, key=lambda each: each.created_at, reverse=True)
    return {"tokens": newest, "rights": list(Right), "current": view.viewer.token}


async def _create(view: View, form: Form) -> Shown:
    hours = form.number("hours") or MOST_HOURS
    if hours > MOST_HOURS:
        raise InvalidRequest(f"A child token lives for at most {MOST_HOURS} hours.")
    rights = [right for right in Right if form.text(f"right_{right}")]
    if not rights:
        raise InvalidRequest("Choose at least one right.")
    async with view.open_log(token_of(form, None)) as log:
        issued = await log.tokens.create(form.required("name"), rights, expires_in=hours * 3600)
    return Shown(template="new_token", title="New token", values={"issued": issued})


async def _revoke(view: View, form: Form) -> str:
    await view.log.tokens.revoke(view.path["token_id"])
    return "tokens"


PAGE = Page(name="tokens", path="tokens", title="Tokens", show=_show, menu="Tokens", key="k")
ACTIONS = (
    Action(name="create_token", path="tokens", run=_create, done=""),
    Action(name="revoke_token", path="tokens/{token_id}/revoke", run=_revoke, done="The token is revoked."),
)
