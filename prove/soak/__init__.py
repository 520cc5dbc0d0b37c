"""A long run without faults that checks whether memory, dead tuples, disk, latency and lag stay bounded."""
