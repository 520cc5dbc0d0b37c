"""A topic as a table: planning a read, cutting it into splits, and reading them."""
