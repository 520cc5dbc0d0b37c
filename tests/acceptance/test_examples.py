"""The published code runs: the examples, the Python of the how-to pages, the curl calls of the HTTP reference, the
roles of the production page.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from lakelog.storage.postgres import install_outbox, migrate
from tests.acceptance.client_kit import ThreadServer
from tests.kit.claims import python_pages
from tests.kit.pages import matches
from tests.kit.postgres import Cluster
from tests.unit.docs.markdown import DOCS, ROOT, blocks, reference

# Their tests run in test_plugin.
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.name.startswith("test_"))
# The page about outboxes needs a database of an application.
TRANSACTIONS = DOCS / "howto" / "publish-in-your-transaction.md"
# The client behaves the same over each transport, which the other pages show; these only combine its calls.
ONCE = ("index", "ask-a-language-model", "cookbook", "from-a-jobs-table", "for-kafka-users", "for-celery-users")
PAGES = [page for page in python_pages() if page != TRANSACTIONS and page.stem not in ONCE]

OUTPUT = {
    "publish_and_read.py": ["acct_1 Order(account='acct_1', total=12)", "acct_2 Order(account='acct_2', total=7)"],
    "producer.py": ["published 2000, the topic has 2000 in 4 partitions"],
    "embedded.py": ["0 tick 0", "4 tick 4"],
    "trace.py": [text for kind, text in blocks((DOCS / "howto/trace-a-message.md").read_text()) if kind == "text"],
    "worker.py": ["billed 12, attempt 1", "billed 30, attempt 1", "gave up {'total': -1}: a negative total"],
}
ARGUMENTS = {"producer.py": ["2000"]}


PRINTED = {
    "handle-batches": ["20 messages, the first has", "(19, 183)", "['the total is not a number']"],
    "replay-messages": [
        "100 checked, 0 left",
        "100 messages in 2 partitions",
        "stopped: The replay stopped at offset",
        "complete: True",
        "99 handled, 1 failed: division by zero",
        "100 inserted",
    ],
}
"""What a page must print, beyond its blocks of kind `text`."""
ELSEWHERE = ("trace-a-message", "give-a-topic-a-schema")
"""Pages whose blocks of kind `text` are the output of an example, or are compared by `test_schema_page`."""

FAILURES = {
    "worker.py": "ValueError: a negative total",
    "index": "attempt 1 of 4 failed, next attempt in 0.1 s: the payment service is busy",
    "handle-dead-letters": "ValueError: a negative total",
    "ask-a-language-model": "ValueError: a negative total: -1",
    "handle-batches": "dead letter (lakelog dead show warehouse 1-0-4): the total is not a number",
}
"""Handlers that fail on purpose; the worker logs the failure."""


def run(
    command: Sequence[str], url: str, cwd: Path, failure: str | None = None, warehouse: str = "", shop: str = ""
) -> str:
    """Return the output of a command that must succeed, with nothing on stderr except the failure: a warning is a
    defect.
    """
    env = {name: text for name, text in os.environ.items() if not name.startswith("LAKELOG_")}
    env |= {
        "LAKELOG_URL": url,
        "LAKELOG_TOKEN": "lkl_not_asked_for",
        "PYTHONWARNINGS": "error",
        "WAREHOUSE_URL": warehouse,
        "SHOP_URL": shop,
    }
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    if failure is None:
        assert done.stderr == ""
    else:
        # A handler that raises is logged with its traceback; a message that it names as failed has none.
        raised = "Error: " in failure
        assert done.stderr.count("Traceback") == raised and done.stderr.endswith(f"{failure}\n"), done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples(example: Path, url: str, tmp_path: Path) -> None:
    printed = run(
        [sys.executable, str(example), *ARGUMENTS.get(example.name, [])], url, tmp_path, FAILURES.get(example.name)
    )
    for expected in OUTPUT[example.name]:
        assert expected in printed


@pytest.mark.parametrize("page", [page for page in python_pages() if page.stem in ONCE], ids=lambda path: path.stem)
def test_python_of_a_page_that_combines(
    page: Path, http_server: ThreadServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    test_python_of_the_docs(page, http_server.url, tmp_path, request)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_python_of_the_docs(page: Path, url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """All blocks of a page, one after another. Blocks of kind `text` are the output of the whole page."""
    script = tmp_path / "page.py"
    script.write_text("\n".join(text for kind, text in blocks(page.read_text()) if kind == "python"))
    warehouse = request.getfixturevalue("migrated_database") if "WAREHOUSE_URL" in page.read_text() else ""
    printed = run([sys.executable, str(script)], url, tmp_path, FAILURES.get(page.stem), warehouse)
    assert printed
    for expected in PRINTED.get(page.stem, []):
        assert expected in printed
    shown = "".join(text for kind, text in blocks(page.read_text()) if kind == "text" and page.stem not in ELSEWHERE)
    assert not shown or matches(shown, printed), f"the page shows:\n{shown}\nit printed:\n{printed}"


def test_python_of_the_page_about_transactions(migrated_database: str, cluster: Cluster, tmp_path: Path) -> None:
    """Each library inserts one order and publishes one message, in one transaction."""
    shop = cluster.create_database()
    asyncio.run(install_outbox(shop))
    with psycopg.connect(shop, autocommit=True) as connection:
        connection.execute("create table shop_order (id text primary key, total int)")
        script = tmp_path / "page.py"
        script.write_text("\n".join(text for kind, text in blocks(TRANSACTIONS.read_text()) if kind == "python"))
        printed = run([sys.executable, str(script)], migrated_database, tmp_path, shop=shop)
        assert printed.startswith("psycopg: outbox-")
        for kind, text in blocks(TRANSACTIONS.read_text()):
            if kind == "sql":
                connection.execute(text.encode())
        orders = connection.execute("select id from shop_order order by id").fetchall()
        keys = connection.execute("select convert_from(key, 'utf8') from lakelog_outbox.message").fetchall()
    cluster.drop_database(shop)
    assert [order for (order,) in orders] == ["a1", "a2", "a3", "a4", "a5"]
    assert sorted(key for (key,) in keys) == ["a1", "a1", "a2", "a3", "a4", "a5"]


def test_curl_of_the_http_reference(http_server: ThreadServer, tmp_path: Path) -> None:
    """Each call returns the fields, and the partitions and offsets, that the page shows below it."""
    script, shown = [], []
    for kind, text in blocks(reference("http")):
        if kind == "sh":
            script.append(text)
        elif kind == "json":
            script.append("echo\n")
            shown.append(json.loads(text))
    answers = [
        json.loads(line) for line in run(["bash", "-euc", "".join(script)], http_server.url, tmp_path).splitlines()
    ]
    assert len(answers) == len(shown) >= 4
    for answer, expected in zip(answers, shown, strict=True):
        assert _outline(answer) == _outline(expected)


_VARYING = (
    *("id", "incarnation", "epoch", "appended_at", "created_at", "expires_at", "token", "secret"),
    # A server without authentication, as in these tests, creates tokens without a parent.
    "parent",
)


def _outline(value: object, name: str = "") -> object:
    """Return the value without the parts that differ between runs."""
    if isinstance(value, dict):
        return {field: _outline(inner, field) for field, inner in value.items()}
    if isinstance(value, list):
        return [_outline(inner, name) for inner in value]
    return name if name in _VARYING else value


def test_roles_of_the_production_page_suffice(tmp_path: Path) -> None:
    """The owner migrates without rights on the cluster; the service works, and cannot change the schema."""
    (script,) = (text for kind, text in blocks((DOCS / "howto/run-in-production.md").read_text()) if kind == "sql")
    with Cluster() as cluster:
        with psycopg.connect(cluster.create_database(), autocommit=True) as admin:
            for statement in filter(str.strip, re.sub(r"--.*", "", script).split(";")):
                admin.execute(statement)
            owner, service = (_url_of(admin, role) for role in ("lakelog_owner", "lakelog_server"))
        asyncio.run(migrate(owner))
        assert "tick 4" in run([sys.executable, str(ROOT / "examples/embedded.py")], service, tmp_path)
        with psycopg.connect(service) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("drop table lakelog.head")


def _url_of(admin: psycopg.Connection, role: str) -> str:
    return f"postgresql://{role}:{quote('…')}@{admin.info.host}:{admin.info.port}/lakelog"
