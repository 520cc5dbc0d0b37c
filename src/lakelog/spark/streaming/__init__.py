"""A topic as a stream, and the query as the one member of its group."""
