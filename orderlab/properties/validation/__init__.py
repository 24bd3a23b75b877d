"""What validation of every kind of store shares: how much work is done, and the suite's own specimens."""
