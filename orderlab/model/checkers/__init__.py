"""Checkers of recorded histories, independent of the explorer."""
