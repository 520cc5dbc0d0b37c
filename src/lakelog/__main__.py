"""`python -m lakelog`: the same as the command `lakelog`."""

from __future__ import annotations

from lakelog.cli.app import main

if __name__ == "__main__":
    main()
