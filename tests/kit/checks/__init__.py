"""One module per invariant, each a pure function: operations and the final read in, counter-examples out."""
