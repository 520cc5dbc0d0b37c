"""Known bugs of other systems as patches of our own code. A proof that does not find them proves nothing."""
