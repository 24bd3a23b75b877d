"""Recorders of what real brokers and servers do: each writes a history that the checkers judge."""
