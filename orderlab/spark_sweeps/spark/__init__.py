"""Spark: the session, its engine, and what its Python workers are told to call."""
