"""A topic as a stream, with the query as the only member of its group."""
