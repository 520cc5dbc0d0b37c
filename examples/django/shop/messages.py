"""The client of the site, the topic, and the handler of orders."""

import lakelog

log = lakelog.connect()
orders = log.topic("orders")


@orders.subscribe(group="payments", start_from="earliest", retries=3)
def pay(message: dict[str, int]) -> None:
    """Set an order to paid. Running again changes nothing, so a repeated delivery is harmless."""
    from shop.models import Order

    if not Order.objects.filter(pk=message["order"]).update(paid=True):
        raise LookupError(f"no order {message['order']}")
