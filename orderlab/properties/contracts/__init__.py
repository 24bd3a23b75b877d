"""What trying a kind of store takes beside its contract: one folder for each contract with a judge of its own."""
