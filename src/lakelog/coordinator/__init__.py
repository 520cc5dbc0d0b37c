"""Pure decisions about groups: leases, positions, assignments, membership.

Nothing here does I/O, reads a clock or draws random numbers: time, randomness and state are arguments. A decision is
made against a version of the state, and `lakelog.storage` commits it only if that version is still the last.
"""
