"""Pull consumers under faults: programs of all kinds, killed at any time, while both servers are killed too."""
