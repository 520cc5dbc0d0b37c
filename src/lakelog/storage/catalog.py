"""The storage seam of the catalog: what there is one of in an installation. Under the rules of `store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from lakelog.model.token import Token
from lakelog.model.topic import Scope, Topic, TopicSettings

if TYPE_CHECKING:
    from lakelog.storage.cold import OrphanCatalog
    from lakelog.storage.groups import GroupCatalog
    from lakelog.storage.pipelines import PipelineCatalog
    from lakelog.storage.staging import WriteCatalog


class Catalog(Protocol):
    """Projects, environments, topics, tokens, the directory: small, and one per installation."""

    @property
    def groups(self) -> GroupCatalog:
        """What it knows of groups."""
        ...

    @property
    def orphans(self) -> OrphanCatalog:
        """Files of the object store that nobody knew."""
        ...

    @property
    def pipelines(self) -> PipelineCatalog:
        """The runs of pipelines."""
        ...

    @property
    def writes(self) -> WriteCatalog:
        """The decisions about staged messages."""
        ...

    async def scope_find(self, project: str, environment: str) -> Scope | None: ...

    async def scope_create(self, project: str, environment: str) -> Scope:
        """The scope, made if it is missing. Safe to repeat."""
        ...

    async def topic_create(self, scope: Scope, name: str, settings: TopicSettings, cells: Sequence[int]) -> Topic:
        """A new incarnation, with partition n in `cells[n]`. `TopicExists` if one of that name is open."""
        ...

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        """The open topic of that name."""
        ...

    async def topic_list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> list[Topic]:
        """Open topics by name, those behind `after`."""
        ...

    async def topic_list_all(self) -> list[Topic]:
        """Open topics of every scope: for the agents of maintenance."""
        ...

    async def topic_alter(self, topic: Topic, settings: TopicSettings, added_cells: Sequence[int]) -> Topic:
        """New settings, and further partitions at the end (which raise the epoch).

        `Conflict` if the topic's epoch is no longer the one given, `TopicNotFound` if it is gone.
        """
        ...

    async def topic_delete(self, topic: Topic) -> bool:
        """Whether this call deleted it. Its partitions' heads are closed by the caller, afterwards."""
        ...

    async def topic_deleted(self, *, limit: int = 100) -> list[Topic]:
        """Deleted topics whose heads may still be open: a caller may have died in between."""
        ...

    async def topic_forget(self, topic: Topic) -> None:
        """All heads of the deleted topic are closed: it need not be listed by `topic_deleted` again."""
        ...

    async def token_create(self, scope: Scope, token: Token, token_hash: bytes) -> None: ...

    async def token_find(self, token_hash: bytes) -> tuple[Scope, Token] | None:
        """Whose token that is, whether or not it is over: the caller checks `expires_at`."""
        ...

    async def token_list(self, scope: Scope) -> list[Token]: ...

    async def token_revoke(self, scope: Scope, token_id: str) -> bool: ...

    async def close(self) -> None: ...
