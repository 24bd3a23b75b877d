"""A first ``store.toml`` for scripts that nobody has bound yet: what their text tells, and marked gaps for the rest."""
