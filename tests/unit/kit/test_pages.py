"""Pages that a stranger follows: every block runs, and outputs are compared except where runs differ."""

from __future__ import annotations

import pytest

from tests.kit.pages import matches, read_blocks

PAGE = """
Install:

```console
$ pip install lakelog
$ curl -s http://x \\
    -d 1
{"ok": true}
```

```python title="app.py"
import lakelog
```

```python
print(1)
```
```text
1
```
"""


def test_blocks_have_commands_files_and_outputs() -> None:
    console, file, python = read_blocks(PAGE)
    assert [(each.text, each.output) for each in console.commands] == [
        ("pip install lakelog", ""),
        ("curl -s http://x \\\n    -d 1", '{"ok": true}'),
    ]
    assert (file.title, file.output) == ("app.py", "")
    assert (python.title, python.text, python.output) == (None, "print(1)\n", "1\n")


@pytest.mark.parametrize(
    "block",
    [
        "```py\nprint(1)\n```",
        "```\na diagram\n```",
        "```sh\nls\n```",
        "```text\nan output of nothing\n```",
        "```console\nno prompt\n```",
        "  ```python\n  print(1)\n  ```",
        "~~~\n```python\n~~~",
    ],
)
def test_a_block_that_would_not_run_is_an_error(block: str) -> None:
    with pytest.raises(AssertionError):
        read_blocks(f"{PAGE}\n{block}\n")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("done", "done\n"),
        ("", ""),
        ("server    http://127.0.0.1:8080", "server    http://127.0.0.1:41234"),
        ("at 2026-01-31 12:00:00.000Z", "at 2026-11-17 20:01:13.123Z"),
        ("NAME    AGE\norders  3m", "NAME    AGE\norders  14s"),
        ("TOOK  STATE\n15s  done", "TOOK   STATE\n1m27s  done"),
        ("one", "Waiting for http://127.0.0.1:8080: no response yet. Ctrl-C to stop.\none\n"),
        ("published 3 in 0.1 s (30/s)", "published 3 in 1.4 s (2,100/s)"),
        ("4 segments (37.2 KiB)", "4 segments (37.4 KiB)"),
        ("one\n…\nfour", "one\ntwo\nthree\nfour"),
        ("one\n…\nfour", "one\nfour"),
        ("data  …/pg", "data  /tmp/x/pg"),
        ("one\n^C\nstopped", "one\n^Cstopped"),
    ],
)
def test_what_differs_between_runs_is_compared_by_shape(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("done", "failed"), ("done", ""), ("", "warning"), ("one", "one\ntwo"), ("lag 0", "lag 1"), ("a…c", "a\nc")],
)
def test_every_other_difference_counts(shown: str, printed: str) -> None:
    assert not matches(shown, printed)
