"""How much the results depend on each number that nobody has published: the tables of ``notes/calibration.md``.

``python -m tests.laboratory.cost_sensitivity tbmq-p2p`` takes every cost whose source is not "published", halves and
doubles it, one at a time, and prints what the system says then. Short runs, one seed: differences below the half-widths
say nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from orderlab.model.errors import InputError
from orderlab.sim.costs.cost_model import Costs, load_costs
from orderlab.sim.systems.catalogue import entry, settings_of

FACTORS = (0.5, 2.0)
AT: Mapping[str, Mapping[str, Any]] = {
    "tbmq-p2p": {"row": "200k", "warm_up_s": 0.12, "duration_s": 0.12},
    "tbmq-jedis": {"publishers": 20_000, "rate": 0.88, "warm_up_s": 0.25, "duration_s": 0.3},
    "tbmq-lettuce": {"publishers": 20_000, "rate": 1.35, "warm_up_s": 0.25, "duration_s": 0.3},
    "tbmq-postgres": {"publishers": 20_000, "rate": 0.71, "warm_up_s": 0.25, "duration_s": 0.3},
}
"""The published row, or 88 % of the ceiling that a search finds."""
NEAR_THE_CEILING = 0.985
"""How busy the machine is at a ceiling that a search finds: less than 1, as its cores are not shared out perfectly."""


def uncertain(costs: Costs) -> Iterator[tuple[str, float]]:
    """(name, value) of each number that was assumed, measured here, or fitted; of a table of numbers, each of them."""
    content = costs.model_dump()
    for name, source in costs.sources.items():
        table, _, key = name.partition(".")
        value = (content[table] or {}).get(key)
        if value is None or source.startswith("published:"):
            continue
        for inner, number in value.items() if isinstance(value, dict) else [("", value)]:
            yield f"{name}.{inner}" if inner else name, number


def figures(system: str, costs: str, more: Mapping[str, Any]) -> dict[str, str]:
    """What the note quotes of one run."""
    settings = settings_of(system, {**AT[system], **more, "costs": costs})
    built: Any = entry(system).assemble(settings, 1, [])
    report = built.run()
    latency, busy = report["latency"], report["utilisation"]
    told = {
        "delivery ms": _mean(latency["publish_to_delivery"]),
        "PUBACK ms": _mean(latency["publish_to_puback"]),
    }
    if "machine" not in busy:
        return {**told, "broker CPU": f"{max(busy['broker']):.1%}", "Redis": f"{max(busy['redis']):.1%}"}
    each = 2 * settings.rate * settings.publishers  # type: ignore[attr-defined]
    return {**told, "ceiling": f"{NEAR_THE_CEILING * each / busy['machine'][0] / 1000:.1f}k"}


def _mean(latency: Mapping[str, Any]) -> str:
    return f"{latency['mean_ms']:.3g}" if latency["count"] else "none"


def table(system: str, patterns: Sequence[str], more: Mapping[str, Any]) -> Iterator[str]:
    """Lines of the table. Raises InputError for a system that has none."""
    if system not in AT:
        raise InputError(f"sensitivity: {system}: no rate to vary costs at; known: {', '.join(AT)}")
    name = str(settings_of(system, AT[system]).costs)  # type: ignore[attr-defined]
    base = figures(system, name, more)
    yield "| cost | " + " | ".join(f"{what}: half, double" for what in base) + " |"
    yield "|---" * (1 + len(base)) + "|"
    yield "| base | " + " | ".join(base.values()) + " |"
    for cost, value in uncertain(load_costs(name)):
        if patterns and not any(fnmatchcase(cost, pattern) for pattern in patterns):
            continue
        told = [figures(system, f"{name} {cost}={type(value)(value * factor)}", more) for factor in FACTORS]
        same = all(each == base for each in told)
        cells = (
            ["no difference"] + [""] * (len(base) - 1)
            if same
            else [", ".join(each[what] for each in told) for what in base]
        )
        yield f"| `{cost}` {value:g} | " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory.cost_sensitivity", description=__doc__)
    parser.add_argument("system", choices=list(AT))
    parser.add_argument("costs", nargs="*", help="names of costs, with * and ?; all by default")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of the system")
    given = parser.parse_args(arguments)
    for word in given.set:
        if "=" not in word:
            raise InputError(f"--set {word}: not a setting; write --set KEY=VALUE")
    for line in table(given.system, given.costs, dict(word.split("=", 1) for word in given.set)):
        print(line, flush=True)


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "sensitivity")
