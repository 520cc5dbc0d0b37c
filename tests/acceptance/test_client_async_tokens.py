"""Child tokens through the client: the same over every transport."""

from __future__ import annotations

import pytest

import lakelog
from lakelog.errors import NotFound


async def test_tokens_are_created_listed_and_revoked(url: str) -> None:
    async with lakelog.connect_async(url) as log:
        current = await log.tokens.current()
        made = await log.tokens.create("console", ["inspect"], expires_in=3600)
        assert (made.name, made.rights) == ("console", ("inspect",))
        assert made.parent == (current.id if current is not None else None)
        assert made.secret not in repr(made)
        assert made.id in [each.id for each in await log.tokens.list()]
        await log.tokens.revoke(made.id)
        assert made.id not in [each.id for each in await log.tokens.list()]
        with pytest.raises(NotFound):
            await log.tokens.revoke(made.id)
