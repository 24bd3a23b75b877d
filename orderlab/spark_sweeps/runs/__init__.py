"""Runs: what one is, where it is safe, what it depends on, in which order and by whom all of them are done."""
