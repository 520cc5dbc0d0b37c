"""The programs connect when they are imported; `lakelog_memory` then takes their calls."""

import os

os.environ["LAKELOG_URL"] = "memory://"
