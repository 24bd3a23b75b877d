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

PLAIN: Final = (bool, int, float, str, bytes, type(None), dict, list, set)


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
                if there is not value or there != copy:
                    self.changed.add(f"{owner.__name__}.{name}")
                    setattr(owner, name, _refilled(value, copy))
            for value in list(names.values()):
                if isinstance(value, _lru_cache_wrapper) and value.cache_info().currsize:
                    self.changed.add(f"{owner.__name__}.{value.__name__}")
                    value.cache_clear()


def _classes_of(module: ModuleType) -> list[type]:
    return [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]


def _lies_in(module: Any, folder: str) -> bool:
    place = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
    return bool(folder and place and "site-packages" not in place and Path(place).is_relative_to(folder))


def _plain_values(owner: ModuleType | type) -> dict[str, tuple[Any, Any]]:
    """By name the value and a copy of it."""
    return {
        name: (value, _copied(value))
        for name, value in vars(owner).items()
        if type(value) in PLAIN and not name.startswith("__")
    }


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return set(value) if type(value) is set else value


def _refilled(value: Any, copy: Any) -> Any:
    """The value itself, for others may refer to it, with what it held."""
    if type(value) is list:
        value[:] = _copied(copy)
    elif type(value) in (dict, set):
        value.clear()
        value.update(_copied(copy))
    return value
