"""`lakelog mcp` as a model's host uses it: a process, to which a client of the protocol speaks over its pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

import lakelog
from tests.acceptance.cli_kit import LAKELOG
from tests.acceptance.client_kit import ThreadServer
from tests.unit.docs.markdown import DOCS, blocks

PAGE = (DOCS / "howto/ask-a-language-model.md").read_text()


async def test_a_client_of_the_protocol_calls_every_tool(http_server: ThreadServer, tmp_path: Path) -> None:
    with lakelog.connect(http_server.url) as log:
        orders = log.topic("orders")
        orders.create()
        first, second = orders.publish_many([{"total": -1}, {"total": 2}])

        @orders.subscribe(group="billing", start_from="earliest", retries=0)
        def bill(order: dict[str, int]) -> None:
            if order["total"] < 0:
                raise ValueError(f"a negative total: {order['total']}")

        log.start()
        while log.group("billing").describe().progress[0].committed < 2:
            orders.fetch(0, offset="latest", wait=0.05)
        log.stop()
    parameters = StdioServerParameters(
        command=LAKELOG, args=["mcp"], env={"LAKELOG_URL": http_server.url, "LAKELOG_TOKEN": ""}, cwd=tmp_path
    )
    async with Client(parameters) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]

        async def ask(name: str, given: dict[str, Any]) -> Any:
            result = await client.call_tool(name, given)
            assert not result.is_error, result
            tools.remove(name)
            return json.loads(result.content[0].text)  # type: ignore[union-attr]

        (cause,) = (await ask("why_stuck", {"group": "billing"}))["causes"]
        assert cause["code"] == "nothing_wrong"
        assert (await ask("group", {"name": "billing"}))["dead_letters"] == 1
        found = await ask("find_messages", {"topic": "orders", "limit": 1})
        assert [message["id"] for message in found["messages"]] == [second.id] and "total" not in json.dumps(found)
        (lane,) = (await ask("message_story", {"id": first.id}))["lanes"]
        assert (lane["group"], lane["state"]) == ("billing", "dead")
        (cluster,) = (await ask("dead_clusters", {"group": "billing"}))["clusters"]
        assert (cluster["count"], cluster["error_type"]) == (1, "ValueError")
        assert cluster["frame"].endswith("in bill") and cluster["example"] == first.id
        assert tools == []


def test_the_page_describes_each_tool_and_its_hosts_can_read_the_settings() -> None:
    for name in ("why_stuck", "group", "find_messages", "message_story", "dead_clusters"):
        assert f"`{name}`" in PAGE
    (settings,) = (json.loads(text) for kind, text in blocks(PAGE) if kind == "json")
    (server,) = settings["mcpServers"].values()
    assert server["command"] == "lakelog" and server["args"][0] == "mcp"
    assert set(server["env"]) == {"LAKELOG_URL", "LAKELOG_TOKEN"}


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['mcp'] = None; from lakelog.cli import main; main()"
    command = [sys.executable, "-c", program, "mcp", "--url", "http://127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 1 and "pip install 'lakelog[mcp]'" in done.stderr
