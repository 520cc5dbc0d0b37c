"""Pure decisions about groups: leases, positions, assignments, membership.

Nothing here does I/O, looks at a clock or rolls dice: time, randomness and state are arguments. A decision is made
against a version of the state; `lakelog.storage` commits it only if that version is still the last.
"""
