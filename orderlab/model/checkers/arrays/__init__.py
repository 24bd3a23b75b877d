"""Compiled data structures of the linear passes."""
