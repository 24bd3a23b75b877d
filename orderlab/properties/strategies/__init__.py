"""Hypothesis strategies: what users, networks and attackers can hand to a store."""
