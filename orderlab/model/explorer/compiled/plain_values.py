"""Which constants compute, hold and count as Python's own do: the others are left to the interpreter."""

from __future__ import annotations

from enum import Enum
from typing import Any

from orderlab.model.spec.variables import IndexSet

_CONTAINERS = (tuple, list, set, frozenset, range, dict, IndexSet)


_OPERATORS = [
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "divmod",
    "pow",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
    "truediv",
]


_DUNDERS = [
    *(f"__{way}{name}__" for name in _OPERATORS for way in ("", "r")),
    *(
        f"__{name}__"
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "bool", "int", "index", "abs", "neg", "pos", "invert", "hash"]
    ),
]


def plain_integer(value: Any) -> bool:
    """Whether a constant is an integer, or a member of an enumeration of integers, that computes as integers do."""
    if type(value) is int:
        return True
    if not (isinstance(value, int) and isinstance(value, Enum)):
        return False
    return all(getattr(type(value), name) is getattr(int, name) for name in _DUNDERS if hasattr(int, name))


def plain_container(value: Any) -> bool:
    """Whether a constant is a container that holds, counts and yields its members as Python's own does."""
    kind = next((kind for kind in _CONTAINERS if isinstance(value, kind)), None)
    names = ("__iter__", "__len__", "__contains__")
    return kind is not None and all(getattr(type(value), n, None) is getattr(kind, n, None) for n in names)
