"""Session stores, old scripts against new ones: the product of both, and both on the same data."""
