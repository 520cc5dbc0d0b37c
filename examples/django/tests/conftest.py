"""A site with an empty database in a file: the handler has a thread and a connection of its own."""

import os
from tempfile import mkdtemp

import django
import pytest
from django.core.management import call_command
from django.test import Client

from lakelog.testing import MemoryInstallation

os.environ |= {
    "DJANGO_SETTINGS_MODULE": "shop.settings",
    "LAKELOG_URL": "memory://",
    "SHOP_FILE": f"{mkdtemp()}/shop.sqlite3",
}
django.setup()


@pytest.fixture
def site(lakelog_memory: MemoryInstallation) -> Client:
    from shop.messages import log, orders

    call_command("migrate", run_syncdb=True, verbosity=0)
    call_command("flush", interactive=False, verbosity=0)
    lakelog_memory.attach(log)
    orders.create()
    return Client()
