"""The log lines about outages of a database. Connections report failures here; nothing is decided."""

from __future__ import annotations

import logging
from weakref import WeakValueDictionary

from lakelog.errors import LakelogError
from lakelog.reporting import FailureLog
from lakelog.storage.postgres.address import DatabaseAddress
from lakelog.storage.postgres.connecting import reason_of, refusal_of

_log = logging.getLogger(__name__)


class Outages:
    """The log lines about outages of one database, for all connections of this process."""

    def __init__(self, address: DatabaseAddress) -> None:
        name = f"PostgreSQL at {address}"
        self._address = address
        fields = {"database": str(address)}
        self._connections = FailureLog(name, "database", _log, fields=fields)
        self._statements = FailureLog(name, "database_statement", _log, fields=fields)
        self._is_refused = False

    def not_connected(self, error: LakelogError) -> None:
        """Record that no connection could be opened. The outage ends when one can; open connections do not count."""
        self._is_refused = True
        cause = error.__cause__ or error
        refusal = refusal_of(self._address, cause)
        self._connections.failed(refusal or reason_of(cause), level=logging.ERROR if refusal else logging.WARNING)

    def lost(self, error: BaseException) -> None:
        self._connections.failed(reason_of(error))

    def statement_failed(self, reason: str) -> None:
        self._statements.failed(reason)

    def connected(self) -> None:
        self._is_refused = False
        self._connections.recovered()

    @property
    def is_on(self) -> bool:
        return self._connections.since is not None

    def answered(self) -> None:
        if not self._is_refused:
            self._connections.recovered()


_outages: WeakValueDictionary[DatabaseAddress, Outages] = WeakValueDictionary()


def outages_of(address: DatabaseAddress) -> Outages:
    """Return the outages of a database. The catalog and the default cell share a database."""
    return _outages.setdefault(address, Outages(address))
