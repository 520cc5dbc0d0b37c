"""The server's settings: environment variables with the prefix LAKELOG_, or arguments. It opens and checks nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from lakelog.errors import ConfigurationError
from lakelog.maintenance import RETENTION_SECONDS
from lakelog.server.tls import TlsFiles


class ServerSettings(BaseSettings):
    """The settings of an operator. Every field has an environment variable: `LAKELOG_PORT` for `port`."""

    model_config = SettingsConfigDict(env_prefix="LAKELOG_", frozen=True, extra="ignore")

    database_url: str | None = Field(
        default=None, repr=False, description="PostgreSQL with the catalog, and the messages if there are no `cells`."
    )
    cells: dict[str, str] = Field(
        default_factory=dict, repr=False, description="JSON: names and URLs of the databases that hold partitions."
    )
    outbox_urls: list[str] = Field(
        default_factory=list,
        repr=False,
        description="JSON: URLs of databases whose outboxes are relayed, besides the one in `database_url`.",
    )
    database_connections: int = Field(
        default=6,
        ge=2,
        le=200,
        description="Connections of a process to each database; one of them listens for announcements.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 for a free one.")
    forward: bool = Field(
        default=True, description="Forward the calls of a group to the server process that is its home."
    )
    advertise_host: str | None = Field(
        default=None,
        description="The address at which other servers reach this one. Default: `host`, or the machine's own address.",
    )
    internal_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description="Port for calls of other servers, and the next ones for further workers. Default: 8480, or any "
        "free port on loopback.",
    )
    tls_certificate: str | None = Field(
        default=None,
        description="PEM file with the server's certificate, for TLS, followed by intermediate ones.",
    )
    tls_key: str | None = Field(default=None, description="PEM file with the private key of `tls_certificate`.")
    tls_client_ca: str | None = Field(
        default=None, description="PEM file with authorities. Clients then need a certificate of one of them."
    )
    workers: int = Field(default=1, ge=1, le=128, description="Processes that share the port.")
    authenticate: bool = Field(
        default=True, description="Require tokens. Without authentication, the server listens on loopback only."
    )
    metrics_listen: str | None = Field(
        default=None,
        description="HOST:PORT on loopback, for the metrics of groups of all environments without a token.",
    )
    console: bool = Field(default=False, description="Serve the web console below `/console`.")
    allow_not_durable: bool = Field(
        default=False, description="Start even if PostgreSQL could lose acknowledged messages; for tests only."
    )
    max_connections: int = Field(default=10_000, ge=1, description="Connections of a process; more are refused.")
    max_connections_per_address: int = Field(
        default=5_000, ge=1, description="Connections from one address to a process; more are refused."
    )
    memory_bytes: int = Field(
        default=256 << 20, ge=16 << 20, description="Memory for bodies, waiting messages and responses, per process."
    )
    object_store: str | None = Field(
        default=None,
        description="The object store for cold segments: `file:///folder` or `s3://bucket/prefix`; the same for "
        "all servers.",
    )
    start_seconds: float = Field(
        default=60.0, ge=0.0, le=3600.0, description="How long a starting server waits for PostgreSQL, unready."
    )
    drain_seconds: float = Field(
        default=20.0, ge=1.0, le=600.0, description="Time from SIGTERM within which running calls may finish."
    )
    retention_seconds: float = Field(
        default=RETENTION_SECONDS,
        ge=0.0,
        le=86_400.0,
        description="How often the retention of topics and of dead letters is enforced; 0 switches it off.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level of log lines."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="One JSON object per line, or plain text for people."
    )

    def tls_files(self) -> TlsFiles | None:
        """Return the files of the certificate; None without TLS. Raise `ConfigurationError` if one is missing."""
        if self.tls_certificate and self.tls_key:
            return TlsFiles(certificate=self.tls_certificate, key=self.tls_key, client_ca=self.tls_client_ca)
        if self.tls_certificate or self.tls_key or self.tls_client_ca:
            raise ConfigurationError("TLS needs both files: --tls-certificate and --tls-key.")
        return None
