"""Mutation testing: scripts and specifications with one flaw each, and whether validation notices.

A mutant is the original but for one place. ``operators`` make them, the kind of the store judges each and compares it
with the original (``orderlab.properties.contracts.kind``), ``campaign`` judges many.
"""
