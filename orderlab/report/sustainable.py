"""A search for the sustainable rate as text: the runs in their order, the ceiling, and what was busy there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from orderlab.sim.systems.sustainable import Step

BUSY = 0.9


def step_line(step: Step) -> str:
    """One run, while the search goes on."""
    return (
        f"{step.rate_per_s:,.0f} msg/s published: mean latency {step.mean_ms:.1f} ms, "
        f"growing by {step.growth_ms_per_s:.1f} ± {step.growth_half_width:.1f} ms/s: {_word(step.is_sustained)}"
    )


def print_ceiling(console: Console, result: Mapping[str, Any]) -> None:
    """Everything that `--json` holds and a reader wants."""
    table = Table("published/s", "delivered/s", "mean latency, ms", "growth, ms/s", "±, of this run", "measured, s", "")
    for run in result["runs"]:
        table.add_row(
            f"{run['rate_per_s']:,.0f}", f"{run['out_per_s']:,}", f"{run['mean_ms']:.4g}", f"{run['growth_ms_per_s']:.3g}",
            f"{run['growth_half_width_ms_per_s']:.3g}", f"{run['measured_s']:g}", _word(run["sustained"]),
        )  # fmt: skip
    console.print(table)
    sustained, overloaded = result["sustainable_per_s"], result["overloaded_per_s"]
    console.print(
        f"{result['system']}: {sustained['in_and_out']:,} msg/s in and out ({sustained['in']:,} published) keep the mean "
        f"latency under {result['below_ms']:g} ms; {overloaded['in_and_out']:,} do not"
    )
    report = result["at_the_ceiling"]
    busy = {kind: max(used) for kind, used in report["utilisation"].items()}
    console.print("busy there: " + ", ".join(f"{kind} {used:.0%}" for kind, used in busy.items()) + "; " + _limit(busy))
    commands = report["redis_commands_per_s"]
    if commands["per_node"]:
        console.print(f"Redis: {max(commands['per_node']):,} commands/s on the busiest node, {commands['all']:,} in all")
    console.print(
        f"seed: {result['seed']}; the search draws its clients once, and another seed has another ceiling: try some, or ask a "
        "capacity question (orderlab sweep) for an interval",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def _limit(busy: Mapping[str, float]) -> str:
    limits = [kind for kind, used in busy.items() if used >= BUSY]
    return f"the limit is {' and '.join(limits)}" if limits else "no processor is the limit: threads wait for something"


def _word(is_sustained: bool) -> str:
    return "sustained" if is_sustained else "overloaded"
