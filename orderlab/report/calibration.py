"""Measured costs beside those of the cost model that they replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from orderlab.sim.costs import load_costs
from orderlab.sim.costs.fit import Measured


def print_calibration(console: Console, measured: Mapping[str, Measured], redis: Mapping[str, Any], base: str) -> None:
    """Inner commands, whole calls, and what the model makes of them. Microseconds."""
    before = load_costs(base).redis
    server = next(iter(measured.values())).server
    console.print(f"{server}; microseconds on its main thread, other work of the machine included", highlight=False)
    table = Table("inner command", *(f"lua/{name}" for name in measured), "calls", f"{base}.toml")
    for name in sorted({command for found in measured.values() for command in found.commands}):
        told = [found.commands.get(name) for found in measured.values()]
        cells = ["" if each is None else f"{each[0]:.2f}" for each in told]
        known = before.commands_us.get(name)
        calls = sum(each[1] for each in told if each is not None)
        table.add_row(name, *cells, f"{calls:,}", "" if known is None else f"{known:g}")
    console.print(table)
    table = Table("whole call", *(f"lua/{name}" for name in measured))
    for operation in next(iter(measured.values())).operations:
        table.add_row(operation, *(f"{found.operations[operation]:.2f}" for found in measured.values()))
    console.print(table)
    table = Table("cost model", "measured", f"{base}.toml")
    for name in ("evalsha_us", "lua_per_message_us", "io_us", "syscall_us"):
        table.add_row(name, f"{redis[name]:g}", f"{getattr(before, name):g}")
    console.print(table)
