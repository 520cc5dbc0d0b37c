"""A long run without faults: whether memory, dead tuples, disk, waits and lag stay where they are."""
