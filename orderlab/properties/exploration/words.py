"""How stories call messages, and how they show the bytes of a store."""

from __future__ import annotations

from typing import Any


def name_of(label: int) -> str:
    """A message: ``m3``."""
    return f"m{label}"


def shown(value: Any) -> str:
    """A frozen value with its bytes as text."""
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return text if text.isprintable() else repr(value)[2:-1]
    if isinstance(value, tuple | list | frozenset):
        items = sorted(map(shown, value)) if isinstance(value, frozenset) else [shown(item) for item in value]
        return "[" + ", ".join(items) + "]"
    return str(value)
