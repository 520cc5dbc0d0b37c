"""An engine in this process, for clients without a server, and the way into its event loop."""
