"""Mutation testing: scripts and specifications with one flaw each, and whether validation notices.

A mutant is the original but for one place. ``operators`` make them, ``judging`` validates one, ``equivalence`` compares
one with the original, ``campaign`` judges many.
"""
