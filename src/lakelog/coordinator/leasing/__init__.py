"""Leasing: which owner holds which messages of a partition, their outcomes, and the progress of the group.

`step` decides and `apply` changes the state. The position of a cursor group is the frontier of a state without leases.
"""
