"""Generated calls against the OpenAPI description: only documented responses, and never a 5xx.

The last test sends mutated bodies that keep their content type, which a description cannot generate.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import one_of
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from lakelog.batches import encode, from_messages
from lakelog.model.message import Message
from lakelog.server.health import VERSION
from lakelog.server.iceberg import is_iceberg
from lakelog.server.openapi import describe
from lakelog.wire.frames import ARROW_MEDIA_TYPE, MEDIA_TYPE, NO_PRODUCER, PublishFrame, write_publish
from lakelog.wire.operations import OPERATIONS
from tests.integration.servers import TOKEN, Running, running
from tests.kit.size import Size

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
    ignored_auth,
]
# The check for ignored authentication removes the header by exactly this name.
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def _create(server: Running, topic: str) -> None:
    with server.client() as client:
        created = client.post("/v1/topics", json={"name": topic, "partitions": 4, "if_missing": True})
        assert created.status_code == 201


@pytest.fixture
def orders(server: Running) -> None:
    """Create the topic of the examples, also after a generated call deleted it."""
    _create(server, "orders")


@schemathesis.serializer(ARROW_MEDIA_TYPE, MEDIA_TYPE)
def _as_bytes(context: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode()


# A pushed stream ends only when the caller disconnects, and these callers do not. A copy, because it is changed.
schema = schemathesis.openapi.from_dict(copy.deepcopy(describe(OPERATIONS, VERSION))).exclude(operation_id="push")


_DESCRIBED = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]


# Not by `schema.parametrize`, whose tests have one name for all operations: of these, pytest-xdist runs only the first.
@pytest.mark.parametrize("described", _DESCRIBED, ids=[each.label for each in _DESCRIBED])
def test_answers_are_as_described(server: Running, orders: None, size: Size, described: Any) -> None:
    @settings(
        max_examples=size.pick(ci=10, full=100),
        derandomize=size is Size.CI,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(one_of(*(described.as_strategy(generation_mode=mode) for mode in GenerationMode)))
    def answered(case: schemathesis.Case) -> None:  # type: ignore[type-arg]
        if "wait_ms" in (case.query or {}) and case.path.endswith("/messages"):
            # Nowhere else: a parameter that a route does not have makes such a call wrong.
            del case.query["wait_ms"]
        if isinstance(case.body, dict) and case.body.get("wait_ms") in range(1, 30_001):
            case.body["wait_ms"] = 0
        checks = [*CHECKS, negative_data_rejection] if _must_be_refused(case) else CHECKS
        case.call_and_validate(base_url=server.url, checks=checks, headers=HEADERS)

    answered()


def _must_be_refused(case: schemathesis.Case) -> bool:  # type: ignore[type-arg]
    """Return whether the call is wrong, apart from its headers, which `HEADERS` replaces."""
    parts = {} if case.meta is None else case.meta.components
    is_wrong = any(part.mode.is_negative for place, part in parts.items() if place is not ParameterLocation.HEADER)
    # Iceberg's catalog ignores what it does not know, because engines send parameters of newer versions.
    return is_wrong and not is_iceberg(case.path)


_VALUES = (
    *(b"null", b"-1", b"0", b"9223372036854775808", b"1e400", b"true", b"{}", b"[]", b'""', b'"\\u0000"'),
    *(b'"\\ud83d\\ude00"', b'"' + b"x" * 5000 + b'"', b"[" * 3000 + b"]" * 3000, b'{"a":{"b":[1.50]}}'),
)


def _seeds() -> dict[str, bytes]:
    table = pa.table({"key": [b"k%d" % n for n in range(20)], "value": [b"v%d" % n for n in range(20)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    payload = encode(from_messages([Message(value=b"v", key=b"k", headers={"a": "b"})] * 20))
    frame = PublishFrame(partition=0, epoch=0, count=20, sequence=0, producer=NO_PRODUCER, payload=payload)
    return {
        "application/json": b'{"messages":[{"key":"k","value":{"a":[1,2]},"headers":{"h":"x"},"expires_ms":1000}]}',
        ARROW_MEDIA_TYPE: sink.getvalue().to_pybytes(),
        MEDIA_TYPE: write_publish([frame, frame]),
    }


def _mutate(body: bytes, chance: random.Random) -> bytes:
    if body.startswith(b"{") and chance.random() < 0.7:
        # Whole values are replaced: changed bytes alone are hardly ever valid JSON.
        parts = re.split(rb'((?<=:)(?:"[^"]*"|\d+|\[[^\]]*\]))', body)
        parts[chance.randrange(1, len(parts), 2)] = chance.choice(_VALUES)
        return b"".join(parts)
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        match chance.randrange(4):
            case 0 if data:
                data[at] = chance.randrange(256)
            case 1:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case 2:
                del data[at : at + chance.randint(1, 16)]
            case _:
                data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", bytes(4), b"\xff\xff\xff\x7f", b'"\\u0'))
    return bytes(data)


def test_mutated_bodies_never_break_the_server(server: Running, size: Size) -> None:
    _create(server, "mutated")
    chance = random.Random(7)
    statuses: Counter[tuple[str, int]] = Counter()
    with server.client() as client:
        for number in range(600 if size is Size.CI else 10_000):
            kind, seed = chance.choice(list(_seeds_once.items()))
            reply = client.post(
                "/v1/topics/mutated/messages", content=_mutate(seed, chance), headers={"content-type": kind}
            )
            statuses[kind, reply.status_code] += 1
            assert reply.status_code < 500, (number, kind, reply.text)
            if reply.status_code >= 400:
                assert reply.headers["content-type"] == "application/problem+json"
        for partition in range(4):
            # Every accepted message can be read again, in each format.
            for accept in ("application/json", ARROW_MEDIA_TYPE, MEDIA_TYPE):
                fetched = client.get(
                    f"/v1/topics/mutated/partitions/{partition}/messages",
                    params={"limit": 10_000},
                    headers={"accept": accept},
                )
                assert fetched.status_code == 200
        assert client.get("/healthz").status_code == 200
    assert server.process.rss() < 1 << 30
    assert {status for _, status in statuses} >= {200, 422}, statuses
    print(dict(statuses))


_seeds_once = _seeds()


def test_the_description_is_served(server: Running) -> None:
    with server.client(None) as client:
        assert client.get("/openapi.json").json() == json.loads(json.dumps(describe(OPERATIONS, VERSION)))
