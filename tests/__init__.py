"""All tests, by suite; the kit that they stand on is in `tests.kit`."""
