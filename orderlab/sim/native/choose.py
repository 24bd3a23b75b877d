"""Where C stands in for Python. Each C file has a text in Python of the same name, in the same folder, with the same
interface; this is the one place that picks one of them, by whether this process takes machine code.

`engine.c` and `prepared.c` are extensions. `call.c` and `json.c` are opened within Lua (``lua_library``): what they
give up on, Lua and `json.py` do.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orderlab.sim.native.install import ROOT, extension, library

__all__ = [
    "Agenda",
    "Sender",
    "Servers",
    "Waits",
    "call_at",
    "columns_of",
    "engine",
    "grouped",
    "lua_library",
    "prepare",
    "prepared",
    "spread",
]

SIM = ROOT / "orderlab" / "sim"
ENGINE = ("Agenda", "Sender", "Servers", "Waits", "call_at", "grouped", "spread")
prepared = extension(SIM / "redis" / "prepared.c")

if TYPE_CHECKING:
    from orderlab.sim.engine.engine import Agenda, Sender, Servers, Waits, call_at, grouped, spread

    engine: Any
else:

    def __getattr__(name):
        """The engine's names once they are asked for: both texts need simpy, and what runs scripts alone does
        without."""
        if name not in ("engine", *ENGINE):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        made = extension(SIM / "engine" / "engine.c")
        chosen = import_module("orderlab.sim.engine.engine") if made is None else made
        globals().update({one: getattr(chosen, one) for one in ENGINE}, engine=made)
        return globals()[name]


if TYPE_CHECKING or prepared is None:
    from orderlab.sim.redis.prepared import columns_of, prepare
else:
    columns_of = prepared.columns

    def prepare(arguments):
        """What makes the arguments in machine code."""
        made, render = prepared.prepare(tuple(arguments)), prepared.render
        return lambda places, columns: render(made, places, columns)


def lua_library(name: str) -> bytes | None:
    """The library that a Lua runtime opens for a C file of the Lua host; None where there is no machine code."""
    made = library(SIM / "redis" / "lua" / "libraries" / name)
    return None if made is None else os.fsencode(made)
