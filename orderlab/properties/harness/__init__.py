"""What every kind of store is run with: what its operations call and leave in its keys."""
