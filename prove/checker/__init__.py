"""One module per invariant. Each check is a pure function over sorted columns that returns counter-examples."""
