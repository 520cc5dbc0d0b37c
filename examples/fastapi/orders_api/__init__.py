"""An API that publishes orders, and the worker that bills them."""
