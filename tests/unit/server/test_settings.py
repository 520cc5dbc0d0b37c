"""Settings from the environment."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lakelog.server import ServerSettings


def test_every_field_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "DATABASE_URL": "postgresql://localhost/x",
        "DATABASE_CONNECTIONS": "4",
        "CELLS": '{"one": "postgresql://localhost/one"}',
        "HOST": "0.0.0.0",
        "PORT": "0",
        "FORWARD": "false",
        "ADVERTISE_HOST": "10.0.0.5",
        "INTERNAL_PORT": "9000",
        "METRICS_LISTEN": "127.0.0.1:9464",
        "TLS_CERTIFICATE": "/etc/lakelog/server.pem",
        "TLS_KEY": "/etc/lakelog/server.key",
        "TLS_CLIENT_CA": "/etc/lakelog/clients.pem",
        "OUTBOX_URLS": '["postgresql://localhost/shop"]',
        "WORKERS": "4",
        "AUTHENTICATE": "false",
        "ALLOW_NOT_DURABLE": "true",
        "OBJECT_STORE": "file:///objects",
        "MAX_CONNECTIONS": "500",
        "MAX_CONNECTIONS_PER_ADDRESS": "100",
        "MEMORY_BYTES": str(64 << 20),
        "START_SECONDS": "5",
        "DRAIN_SECONDS": "5",
        "RETENTION_SECONDS": "0",
        "CONSOLE": "true",
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": "console",
    }
    assert {name.lower() for name in given} == set(ServerSettings.model_fields)
    for name, value in given.items():
        monkeypatch.setenv(f"LAKELOG_{name}", value)
    settings = ServerSettings()
    defaults = {
        name: field.get_default(call_default_factory=True) for name, field in ServerSettings.model_fields.items()
    }
    assert all(getattr(settings, name) != default for name, default in defaults.items())
    assert settings.cells == {"one": "postgresql://localhost/one"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "70000"),
        ("WORKERS", "0"),
        ("MEMORY_BYTES", "1"),
        ("LOG_FORMAT", "xml"),
        ("CELLS", "[]"),
        ("RETENTION_SECONDS", "-1"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LAKELOG_{name}", value)
    with pytest.raises(ValidationError):
        ServerSettings()


def test_passwords_are_not_shown() -> None:
    settings = ServerSettings(
        database_url="postgresql://me:hunter2@localhost/x", cells={"a": "postgresql://:hunter2@b"}
    )
    assert "hunter2" not in repr(settings)


def test_every_field_is_described() -> None:
    assert all(field.description for field in ServerSettings.model_fields.values())
