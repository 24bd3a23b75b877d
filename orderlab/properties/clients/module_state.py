"""What the modules of a scenario hold between executions: plain values are as they were after the import.

Clients share a module while they run, as threads of a process do. What one execution leaves there must be no part of
the next, or a lazy beginning would run once in thousands of orders.
"""

from __future__ import annotations

import sys
from functools import _lru_cache_wrapper
from pathlib import Path
from types import ModuleType
from typing import Any, Final

CONTAINERS: Final = (dict, list, set)
PLAIN: Final = (bool, int, float, str, bytes, type(None), *CONTAINERS)
ENTRIES_MAX: Final = 1_000
"""What a value holds at most, with all that is in it: it is looked at before every execution."""


class ModuleState:
    """The plain values and caches of the modules that lie in a folder, and of their classes, as they are now."""

    def __init__(self, folder: str) -> None:
        modules = [module for module in list(sys.modules.values()) if _lies_in(module, folder)]
        owners: list[ModuleType | type] = [*modules]
        owners += [each for module in modules for each in _classes_of(module)]
        self._kept = [(owner, _plain_values(owner)) for owner in owners]
        self.changed: set[str] = set()
        """What executions have changed."""

    def put_back(self) -> None:
        """Note what has changed, and undo it."""
        for owner, kept in self._kept:
            names = vars(owner)
            for name, (value, copy) in kept.items():
                there = names.get(name)
                is_another = there is not value if type(value) in CONTAINERS else type(there) is not type(value)
                if is_another or there != copy:
                    self.changed.add(f"{owner.__name__}.{name}")
                    _refill(value, copy)
                    if there is not value:
                        setattr(owner, name, value)
            for value in list(names.values()):
                if isinstance(value, _lru_cache_wrapper) and value.cache_info().currsize:
                    self.changed.add(f"{owner.__name__}.{value.__name__}")
                    value.cache_clear()


def _classes_of(module: ModuleType) -> list[type]:
    return [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]


def _lies_in(module: Any, folder: str) -> bool:
    place = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
    if not (folder and place) or "site-packages" in place or module.__name__.partition(".")[0] == "orderlab":
        return False
    return Path(place).is_relative_to(folder)


def _plain_values(owner: ModuleType | type) -> dict[str, tuple[Any, Any]]:
    """By name the value and a copy of it."""
    return {
        name: (value, _copied(value))
        for name, value in vars(owner).items()
        if type(value) in PLAIN and not name.startswith("__") and _is_small(value)
    }


def _is_small(value: Any) -> bool:
    ahead, count = [value], 0
    while ahead and count <= ENTRIES_MAX:
        held = ahead.pop()
        if type(held) in CONTAINERS:
            count += len(held)
            ahead += held.values() if type(held) is dict else held
    return count <= ENTRIES_MAX


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return set(value) if type(value) is set else value


def _refill(value: Any, copy: Any) -> None:
    """Give a value what it held; it stays the same one, for others may refer to it."""
    if type(value) is list:
        value[:] = _copied(copy)
    elif type(value) in (dict, set):
        value.clear()
        value.update(_copied(copy))
