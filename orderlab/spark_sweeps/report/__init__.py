"""Reports of sweeps: one HTML file that needs nothing else, and the tables beside it."""
