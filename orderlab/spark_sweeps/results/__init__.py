"""Results: the folder of one sweep, its rows, and what the rows of each point say together."""
