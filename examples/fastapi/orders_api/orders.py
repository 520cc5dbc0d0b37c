"""The values that the API publishes and the worker handles."""

from pydantic import BaseModel

TOPIC = "orders"


class Order(BaseModel):
    account: str
    total: int
