"""One module per invariant of leases, each a pure function: the story and the truth in, counter-examples out."""
