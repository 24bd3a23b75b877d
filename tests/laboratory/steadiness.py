"""Are the machines steady? Every correct store stays green and every specimen turns red, whatever the seed.

`python -m tests.laboratory.steadiness --seeds 50` runs the machines of the profile ``ci`` and prints one line a store:
for a correct store the number of seeds with an accusation (must be 0), for a specimen the number of seeds without (must
be 0), and the examples and CPU seconds until it was found. Exit code 1 when one of them is not 0.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orderlab
from orderlab.properties.contracts.session.machines.hostile_clients import HostileClients
from orderlab.properties.contracts.session.machines.on_store import ALL, Machines, machines_for, on_kernel
from orderlab.properties.contracts.session.machines.store import LawViolated
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.exploration import small_world
from orderlab.properties.contracts.session.validation.single_law import search
from orderlab.properties.machines.tally import tally_of
from orderlab.properties.profiles import PROFILES, Profile
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.specimens import find_specimens
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

CORRECT = ("session", "pending")
LUA = Path(orderlab.__file__).parent / "lua"


@dataclass
class Steadiness:
    """One store over all seeds."""

    name: str
    breaks: tuple[str, ...]
    red: int = 0
    green: int = 0
    examples: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    by: dict[str, int] = field(default_factory=dict)
    """Machine -> how often it was the one that found it."""

    @property
    def wrong(self) -> int:
        """Seeds with the wrong colour."""
        return self.green if self.breaks else self.red

    def line(self) -> str:
        """For the table."""
        expected = "red" if self.breaks else "green"
        told = f"{self.name:<32} {expected:<6} wrong {self.wrong:>2} of {self.red + self.green}"
        told += f"  examples {statistics.median(self.examples):>5.0f} (most {max(self.examples)})"
        told += f"  CPU {statistics.median(self.cpu_s):>5.2f} s (most {max(self.cpu_s):.1f})"
        return told + f"  {', '.join(f'{name} {count}' for name, count in sorted(self.by.items()))}"


def machines_of(breaks: tuple[str, ...]) -> Machines:
    """Those of the first law that a specimen breaks and then those of its others; for a correct store all."""
    if not breaks:
        return (*ALL, HostileClients)
    return tuple(dict.fromkeys(machine for law in breaks for machine in machines_for(law)))


def measure(binding: Binding, seeds: range, profile: Profile) -> Steadiness:
    """One store with every seed. A machine stops at its first violation; nothing is shrunk, nothing remembered."""
    breaks = tuple(binding.specimen.breaks) if binding.specimen else ()
    found = Steadiness(binding.name, breaks)
    small = small_world(Subject(binding), Findings(frozenset(breaks)))
    for number in seeds:
        began, tried, accused = time.process_time(), 0, None
        for kind in machines_of(breaks):
            name = f"Small{kind.__name__}"
            before = tally_of(name).examples
            machine = on_kernel(kind, small, name, laws=frozenset(breaks) if breaks else None)
            drawn = zlib.crc32(f"{number} {binding.name} {name}".encode())
            accused = search(machine, profile, drawn, None, shrinks=False)
            tried += tally_of(name).examples - before
            if accused is not None:
                found.by[kind.__name__] = found.by.get(kind.__name__, 0) + 1
                if not breaks:
                    _tell(accused[0], binding, number)
                break
        found.red += accused is not None
        found.green += accused is None
        found.examples.append(tried)
        found.cpu_s.append(time.process_time() - began)
    return found


def _tell(violation: LawViolated, binding: Binding, number: int) -> None:
    print(f"{binding.name}, seed {number}: {violation}", file=sys.stderr)


def stores(names: Sequence[str]) -> list[Binding]:
    """Those of these names, or in these folders; all bundled ones when none is named. Raises InputError."""
    bundled = [*(load_binding(LUA / name) for name in CORRECT), *find_specimens()]
    by_name = {one.name: one for one in bundled}
    return [by_name[name] if name in by_name else load_binding(Path(name)) for name in names] or bundled


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory.steadiness", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="ci")
    parser.add_argument("stores", nargs="*", help="names of bundled ones, or folders of others; by default all bundled")
    given = parser.parse_args()
    bindings = stores(given.stores)
    profile = PROFILES[given.profile]
    seeds = range(given.first, given.first + given.seeds)
    print(
        f"profile {profile.name}: {profile.examples} examples of {profile.steps} steps a machine; seeds {seeds}",
        flush=True,
    )
    wrong = 0
    for binding in bindings:
        result = measure(binding, seeds, profile)
        wrong += result.wrong
        print(result.line(), flush=True)
    print("steady" if not wrong else f"{wrong} runs have the wrong colour")
    return 1 if wrong else 0


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "steadiness")
