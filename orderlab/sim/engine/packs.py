"""Packs: messages and calls that go on together, some forty at a time."""

from __future__ import annotations

from collections.abc import Iterable


def grouped(values: Iterable[int], keys: Iterable[int]) -> dict[int, list[int]]:
    """The values of each key, in order, by the order of the keys' first places. For packs, which are too small for numpy."""
    groups: dict[int, list[int]] = {}
    for value, key in zip(values, keys, strict=True):
        found = groups.get(key)
        if found is None:
            groups[key] = [value]
        else:
            found.append(value)
    return groups
