"""The operations about tokens that callers make for themselves. A caller needs some right, no matter which."""

from __future__ import annotations

from lakelog.model import token as model
from lakelog.model.token import Right
from lakelog.wire.operations.operation import Audit, Operation

_TOKENS = "/v1/tokens"
_ANY = frozenset(Right)

CREATE_TOKEN = Operation(
    name="create_token",
    method="POST",
    path=_TOKENS,
    rights=_ANY,
    summary="Create a child of the caller's token, with the same rights or fewer",
    request=model.CreateTokenRequest,
    reply=model.IssuedToken,
    status=201,
    is_repeatable=False,
    example={"name": "console of Ada", "rights": ["inspect"], "expires_in_ms": 3_600_000},
    audit=Audit(text="created child token {name}", made="id"),
    problems=(409,),
)
LIST_TOKENS = Operation(
    name="list_tokens",
    method="GET",
    path=_TOKENS,
    rights=_ANY,
    summary="List the children of the caller's token; with the right to manage, all tokens",
    request=model.TokenQuery,
    reply=model.TokenList,
)
REVOKE_TOKEN: Operation[model.TokenRequest, None] = Operation(
    name="revoke_token",
    method="DELETE",
    path=f"{_TOKENS}/{{token_id}}",
    rights=_ANY,
    summary="Revoke a child token",
    request=model.TokenRequest,
    reply=None,
    audit=Audit(text="revoked token {token_id}"),
    problems=(404,),
)
