"""`lakelog pipelines run` as a program for spark-submit. It prints a JSON line per result.

spark-submit --master spark://host:7077 …/lakelog/cli/submit.py tier --topic orders
spark-submit --master spark://host:7077 …/lakelog/cli/submit.py replay orders --to orders-copy --name copy-2026
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lakelog.cli.app import app


def main(arguments: Sequence[str]) -> None:
    """Run the pipeline, and exit."""
    command, rest = list(arguments[:1]), arguments[1:]
    named = [*command, "--json"] if command and not command[0].startswith("-") else command
    app(["pipelines", "run", *named, *rest], prog_name="lakelog")


if __name__ == "__main__":
    main(sys.argv[1:])
