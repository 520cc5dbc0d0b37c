"""One module per invariant, each a pure function over sorted columns: what it returns are counter-examples."""
