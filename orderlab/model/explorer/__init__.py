"""Search of every interleaving of a small system."""
