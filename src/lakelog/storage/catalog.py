"""Storage protocol of the catalog, of which an installation has one. The rules of `store` apply."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from lakelog.model.inventory import Inventory
from lakelog.model.schema import SchemaRecord, SchemaVersion
from lakelog.model.token import Token
from lakelog.model.topic import Scope, Topic, TopicSettings

if TYPE_CHECKING:
    from lakelog.storage.audit import AuditStore
    from lakelog.storage.cold import OrphanCatalog
    from lakelog.storage.groups import GroupCatalog
    from lakelog.storage.history import SampleStore
    from lakelog.storage.iceberg import IcebergCatalog
    from lakelog.storage.outbox import RejectedCatalog
    from lakelog.storage.pipelines import PipelineCatalog
    from lakelog.storage.staging import WriteCatalog


class Catalog(Protocol):
    """Projects, environments, topics, tokens and the directory. An installation has one catalog."""

    @property
    def audit(self) -> AuditStore:
        """Audit records. A method that makes a change writes the record of the running call in its transaction."""
        ...

    @property
    def groups(self) -> GroupCatalog:
        """Groups and the topics that they read."""
        ...

    @property
    def samples(self) -> SampleStore:
        """Samples of the figures of groups."""
        ...

    @property
    def iceberg(self) -> IcebergCatalog:
        """Topics as Iceberg tables."""
        ...

    @property
    def orphans(self) -> OrphanCatalog:
        """Files of the object store that no cell has registered."""
        ...

    @property
    def pipelines(self) -> PipelineCatalog:
        """Pipeline runs."""
        ...

    @property
    def writes(self) -> WriteCatalog:
        """Decisions about staged messages."""
        ...

    @property
    def rejected(self) -> RejectedCatalog:
        """Messages that the log refused after they were published."""
        ...

    @property
    def level(self) -> int:
        """The feature level of the installation, when the catalog was opened or a server was last seen."""
        ...

    async def scope_find(self, project: str, environment: str) -> Scope | None: ...

    async def scope_create(self, project: str, environment: str) -> Scope:
        """Return the scope, and create it if it is missing. Safe to repeat."""
        ...

    async def inventory_read(self, scope: Scope) -> Inventory:
        """Return the names of the open topics and groups of the environment."""
        ...

    async def topic_create(
        self, scope: Scope, name: str, settings: TopicSettings, cells: Sequence[int], schema: str | None = None
    ) -> Topic:
        """Create a new incarnation, with partition n in `cells[n]`. Raise `TopicExists` if the name is in use.

        `schema` is stored as the version that the settings name, in the same transaction.
        """
        ...

    async def topic_find(self, scope: Scope, name: str) -> Topic | None:
        """Return the open topic with this name."""
        ...

    async def topic_list(self, scope: Scope, *, after: str = "", limit: int = 1000) -> list[Topic]:
        """Return open topics sorted by name, starting after `after`."""
        ...

    async def topic_list_all(self) -> list[Topic]:
        """Return the open topics of all scopes, for maintenance."""
        ...

    async def topic_list_some(self, incarnations: Collection[int]) -> list[Topic]:
        """Return the topics with these incarnations, also deleted ones."""
        ...

    async def topic_newest(self) -> int:
        """Return the newest incarnation that was given to a topic, also to a deleted one; 0 if there was none."""
        ...

    async def topic_skip(self, incarnation: int) -> None:
        """Give later topics incarnations above this one."""
        ...

    async def topic_alter(
        self, topic: Topic, settings: TopicSettings, added_cells: Sequence[int], schema: str | None = None
    ) -> Topic:
        """Write new settings and add partitions at the end, which raises the epoch.

        `schema` is stored as the version that the settings name, in the same transaction.
        Raise `Conflict` if the topic's version is not the given one, and `TopicNotFound` if the topic is deleted.
        """
        ...

    async def schema_find(self, incarnation: int, version: int) -> SchemaRecord | None:
        """Return one version of a topic's schema."""
        ...

    async def schema_versions(self, incarnation: int, *, limit: int = 1000) -> list[SchemaVersion]:
        """Return the newest versions of a topic's schema, the oldest first. They outlive the removal of the schema."""
        ...

    async def topic_delete(self, topic: Topic) -> bool:
        """Delete the topic, and return whether this call deleted it.

        The caller closes the partitions' heads afterwards.
        """
        ...

    async def topic_deleted(self, *, limit: int = 100) -> list[Topic]:
        """Return deleted topics whose heads may still be open because the caller of `topic_delete` died."""
        ...

    async def topic_forget(self, topic: Topic) -> None:
        """Record that all heads of the deleted topic are closed. `topic_deleted` no longer returns it."""
        ...

    async def token_create(self, scope: Scope, token: Token, token_hash: bytes) -> None:
        """Store a token. If it has a parent, children that have expired are deleted."""
        ...

    async def token_find(self, token_hash: bytes) -> tuple[Scope, Token] | None:
        """Return the token with this hash and its scope, even if it is expired: the caller checks `expires_at`.

        A child whose parent is revoked is not found.
        """
        ...

    async def tokens_find(self, token_hashes: Sequence[bytes]) -> dict[bytes, tuple[Scope, Token]]:
        """Return the tokens with these hashes and their scopes, like `token_find`, without revoked tokens."""
        ...

    async def token_list(self, scope: Scope) -> list[Token]:
        """Return the tokens that are not revoked, without expired children and without children of revoked tokens."""
        ...

    async def token_revoke(self, scope: Scope, token_id: str) -> bool: ...

    def on_replaced(self, call: Callable[[], None]) -> None:
        """Call `call` when a promoted standby has replaced the data, before any of the new data is returned.

        Offsets, versions and ids may then have another meaning. Calls that ran on the replaced data fail.
        """
        ...

    async def check(self) -> None:
        """Raise `Unavailable` if the database does not respond, is read-only, or was replaced."""
        ...

    async def close(self) -> None: ...
