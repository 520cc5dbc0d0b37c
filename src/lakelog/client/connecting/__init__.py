"""From the arguments of `connect` to a client: the server, its URL and token, and the errors of a failed connection."""
