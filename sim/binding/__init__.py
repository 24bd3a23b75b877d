"""Bindings: how a store's operations call its scripts, and what their replies mean (``store.toml``)."""
