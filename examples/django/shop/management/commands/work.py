"""`manage.py work`: runs the handlers until SIGTERM or Ctrl-C."""

from django.core.management.base import BaseCommand

from shop.messages import log, orders


class Command(BaseCommand):
    help = "Run the handlers of the shop."

    def handle(self, *args: object, **options: object) -> None:
        orders.create(partitions=4, if_missing=True)
        log.run()
