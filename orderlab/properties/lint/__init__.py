"""Mistakes that are seen in a script's text alone: no run, no contract."""
