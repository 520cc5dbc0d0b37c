"""From the arguments of `connect` to a client."""
