"""PostgreSQL as a session store: two tables as rows, group commit, and a pool of connections."""
