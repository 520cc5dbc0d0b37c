"""Runs in the clean environment: prints what is installed as JSON, after the wheel has done its work once."""

import json
from importlib import metadata

import lakelog


def work() -> None:
    """Publish, handle, and read again, in memory."""
    with lakelog.connect("memory://smoke") as log:
        orders = log.topic("orders")
        orders.create(partitions=2)
        seen: list[int] = []

        @orders.subscribe(group="smoke", start_from="earliest")
        def handle(order: dict[str, int]) -> None:
            seen.append(order["n"])

        orders.publish_many([{"n": n} for n in range(100)])
        log.start()
        while log.group("smoke").lag():
            orders.fetch(0, offset="latest", wait=0.05)
        log.stop()
        assert sorted(seen) == list(range(100)), seen
        assert orders.read_arrow().num_rows == 100
        assert log.group("smoke").describe().stuck[0].code == "nothing_wrong"


def license_of(found: metadata.Distribution) -> str | None:
    """Return the license expression, or else what the metadata has in its place."""
    about = found.metadata
    classifiers = about.get_all("Classifier") or []
    named = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    texts = [each for name in ("License-Expression", "License") for each in about.get_all(name) or []]
    return (texts[0].partition("\n")[0] if texts else ", ".join(named)) or None


if __name__ == "__main__":
    work()
    installed = [
        {
            "name": each.metadata["Name"],
            "version": each.version,
            "license": license_of(each),
            "requires": [line.split(";")[0] for line in each.requires or () if "extra ==" not in line],
        }
        for each in metadata.distributions()
    ]
    print(json.dumps(installed))
