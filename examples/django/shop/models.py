"""Orders."""

from django.db import models


class Order(models.Model):
    account = models.CharField(max_length=40)
    total = models.IntegerField()
    paid = models.BooleanField(default=False)
