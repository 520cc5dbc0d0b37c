"""The view and the handler against an installation in memory."""

from django.db import transaction
from django.test import Client
from shop.messages import pay
from shop.models import Order
from shop.views import publish

from lakelog.testing import MemoryInstallation


def test_an_order_is_stored_published_and_paid(site: Client, lakelog_memory: MemoryInstallation) -> None:
    placed = site.post("/orders/", {"account": "a1", "total": "30"})
    assert placed.status_code == 202
    lakelog_memory.assert_published("orders", count=1, key="a1", value={"order": placed.json()["order"]})
    assert lakelog_memory.drain(pay).acked == 1
    assert Order.objects.get().paid


def test_an_order_that_is_rolled_back_is_not_published(site: Client, lakelog_memory: MemoryInstallation) -> None:
    try:
        with transaction.atomic():
            order = Order.objects.create(account="a1", total=30)
            transaction.on_commit(lambda: publish(order))
            raise RuntimeError("the card was declined")
    except RuntimeError:
        pass
    lakelog_memory.assert_published("orders", count=0)


def test_an_order_that_is_gone_is_retried(site: Client, lakelog_memory: MemoryInstallation) -> None:
    site.post("/orders/", {"account": "a1", "total": "30"})
    Order.objects.all().delete()
    assert lakelog_memory.drain(pay).failed == 1
