"""Stores: what each of them adds to the contract."""
