"""Run the engine inside an asyncio program, without a server: in memory, or on the database LAKELOG_URL=postgresql://….

python examples/embedded.py
"""

import asyncio
import os

import lakelog

COUNT = 5


async def publish(topic: lakelog.AsyncTopic[str]) -> None:
    for number in range(COUNT):
        await topic.publish(f"tick {number}", partition=0)


async def follow(topic: lakelog.AsyncTopic[str], offset: int) -> None:
    """Print messages as they arrive. The program keeps its own position."""
    end = offset + COUNT
    while offset < end:
        page = await topic.fetch(partition=0, offset=offset, wait=5.0)
        for message in page.messages:
            print(message.offset, message.value)
        offset = page.next_offset


async def main() -> None:
    async with lakelog.connect_async(os.environ.get("LAKELOG_URL", "memory://example")) as log:
        ticks = log.topic("example-ticks", type=str)
        await ticks.create(if_missing=True)
        start = (await ticks.describe()).partition_list[0].high_watermark
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(follow(ticks, start))
            tasks.create_task(publish(ticks))


asyncio.run(main())
