"""The view that takes orders."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.messages import orders
from shop.models import Order


@csrf_exempt  # called by programs, which have no form
@require_POST
def place(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(account=request.POST["account"], total=int(request.POST["total"]))
        transaction.on_commit(lambda: publish(order))
    return JsonResponse({"order": order.pk}, status=202)


def publish(order: Order) -> None:
    orders.publish({"order": order.pk}, key=order.account, idempotency_key=f"order-{order.pk}")
