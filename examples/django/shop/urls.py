"""The only URL."""

from django.urls import path

from shop.views import place

urlpatterns = [path("orders/", place)]
