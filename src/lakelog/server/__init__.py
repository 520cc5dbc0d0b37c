"""The HTTP server: routes, tokens, health, metrics, and the processes that serve. Start it with `run`."""

from lakelog.server.app import App, create_app
from lakelog.server.auth import check_exposure
from lakelog.server.drain import Drain
from lakelog.server.health import HealthSource, check_durability
from lakelog.server.logs import configure_logging
from lakelog.server.metrics import METRICS
from lakelog.server.serving import OpenEngine, run, serve
from lakelog.server.settings import ServerSettings
from lakelog.server.starting import log_no_authentication, log_not_durable

__all__ = [
    "METRICS",
    "App",
    "Drain",
    "HealthSource",
    "OpenEngine",
    "ServerSettings",
    "check_durability",
    "check_exposure",
    "configure_logging",
    "create_app",
    "log_no_authentication",
    "log_not_durable",
    "run",
    "serve",
]
