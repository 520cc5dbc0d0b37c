"""A worker in a separate process, for tests that kill, stop or block it: `worker_program.py URL MODE`.

It prints one line for each step of its handler.
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time

import lakelog

LEASE, SECONDS = 4.0, 9.0


def say(text: str) -> None:
    print(text, flush=True)


def hold_the_lock(seconds: float) -> None:
    """Sleep like a C extension that never releases the interpreter lock."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


def main() -> None:
    url, mode = sys.argv[1:]
    log = lakelog.connect(url)
    topic = log.topic("work")
    timeout = 60.0 if mode in ("sleeps", "blocks-the-loop", "holds") else 2.0

    def handle(value: object, delivery: lakelog.Delivery[object]) -> None:
        say(f"begun {delivery.offset} attempt {delivery.attempt}")
        if mode == "sleeps":
            time.sleep(600)
        hold_the_lock(SECONDS if mode == "holds" else 600)
        say(f"ended {delivery.offset}")

    async def handle_async(value: object, delivery: lakelog.AsyncDelivery[object]) -> None:
        say(f"begun {delivery.offset} attempt {delivery.attempt}")
        if mode == "waits":
            await asyncio.sleep(600)
        time.sleep(SECONDS)  # a plausible mistake of a user
        say(f"ended {delivery.offset}")

    handler = handle_async if mode in ("blocks-the-loop", "waits") else handle
    topic.subscribe(handler, group="group", lease=LEASE, ack_timeout=timeout, start_from="earliest")
    log.run()
    say("stopped")


if __name__ == "__main__":
    main()
