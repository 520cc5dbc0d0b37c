"""The contract of the storage seams: every implementation passes all of it."""
