"""`python -m prove.simulation`: the command by itself."""

import sys

from prove.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
