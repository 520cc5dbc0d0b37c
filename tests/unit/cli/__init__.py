"""The command line, without a server."""
