"""The API: it publishes orders, and tells what became of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request

import lakelog
from orders_api.orders import TOPIC, Order


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, lakelog.AsyncLakelog]]:
    async with lakelog.connect_async() as log:
        await log.topic(TOPIC).create(partitions=4, if_missing=True)
        yield {"log": log}


app = FastAPI(title="Orders", lifespan=lifespan)


def client(request: Request) -> lakelog.AsyncLakelog:
    return request.state.log


Log = Annotated[lakelog.AsyncLakelog, Depends(client)]


@app.post("/orders", status_code=202)
async def place(order: Order, log: Log, idempotency_key: Annotated[str | None, Header()] = None) -> dict[str, str]:
    receipt = await log.topic(TOPIC, type=Order).publish(order, key=order.account, idempotency_key=idempotency_key)
    return {"id": receipt.id}


@app.get("/messages/{message_id}")
async def follow(message_id: str, log: Log) -> dict[str, str]:
    """Return the state of a message in each group."""
    try:
        story = await log.message_story(message_id, topic=TOPIC)
    except lakelog.errors.NotFound as error:
        raise HTTPException(404, error.detail) from error
    return {lane.group: lane.state for lane in story.lanes}
