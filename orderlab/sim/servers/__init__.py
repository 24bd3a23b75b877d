"""Servers in time: Redis nodes and PostgreSQL, with service times from a cost model."""
