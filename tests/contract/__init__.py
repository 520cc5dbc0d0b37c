"""The contract of the storage protocols, which every implementation has to pass."""
