"""Benchmarks: this project beside its peers, in one run on one machine, as ratios."""
