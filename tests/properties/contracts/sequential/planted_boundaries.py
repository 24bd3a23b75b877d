"""Fifty flaws at numbers that stand nowhere else, drawn by a seed: five in each of ten stores.

``python -m tests.properties.contracts.sequential.planted_boundaries [EFFORT [SEED [STORE ...]]]`` measures how many
the boundaries alone convict.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.properties.engine.boundaries import solve
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.situations import situate
from orderlab.properties.engine.validation import contract_of, run_of
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path("lua")
STYLES = Path(__file__).parent / "other_styles"
SITUATIONS = 0.5
"""The effort of the search whose situations are run with marked values."""


class Site(NamedTuple):
    """Where a flaw stands: a script, a number that it knows there, and what it does wrong at the drawn one."""

    kind: str
    script: str
    number: str
    wrong: str


def argument(script: str, at: int) -> Site:
    return Site("equal", script, f"tonumber(ARGV[{at}])", f"ARGV[{at}] = tostring(math.floor(ARGV[{at}] / 2))")


def capped(script: str, at: int) -> Site:
    return Site("above", script, f"tonumber(ARGV[{at}])", f"ARGV[{at}] = tostring(math.floor(ARGV[{at}] / 2))")


def coarse(script: str, at: int) -> Site:
    return Site("coarse", script, f"ARGV[{at}]", "")


def length(script: str, at: int, kind: str = "length") -> Site:
    return Site(kind, script, f"#ARGV[{at}]", f"ARGV[{at}] = string.sub(ARGV[{at}], 1, #ARGV[{at}] - 1)")


def stored(kind: str, script: str, command: str, reply: str) -> Site:
    return Site(kind, script, f"tonumber(redis.call({command}) or 0)", f"do return {reply} end")


SITES: dict[str, tuple[Site, ...]] = {
    "job_queue": (
        argument("add.lua", 2),
        argument("take.lua", 1),
        stored("size", "take.lua", "'HLEN', KEYS[1]", "false"),
        stored("modulus", "add.lua", "'HGET', KEYS[7], 'sequence'", "0"),
        length("add.lua", 5),
    ),
    "lock": (
        argument("acquire.lua", 1),
        argument("renew.lua", 2),
        stored("size", "acquire.lua", "'GET', KEYS[2]", "false"),
        stored("modulus", "acquire.lua", "'GET', KEYS[2]", "false"),
        coarse("acquire.lua", 1),
    ),
    "bullmq_queue": (
        argument("addJob.lua", 3),
        argument("moveToActive.lua", 2),
        length("addJob.lua", 2),
        stored("size", "moveToActive.lua", "'LLEN', KEYS[1]", "false"),
        stored("full", "addJob.lua", "'LLEN', KEYS[1]", "0"),
    ),
    "sorted_queue": (
        argument("push.lua", 3),
        argument("pop.lua", 1),
        stored("modulus", "push.lua", "'GET', KEYS[5]", "0"),
        stored("size", "pop.lua", "'ZCARD', KEYS[1]", "false"),
        stored("full", "push.lua", "'HLEN', KEYS[3]", "0"),
    ),
    "sidekiq_queue": (
        argument("push.lua", 2),
        argument("fetch.lua", 1),
        stored("size", "fetch.lua", "'LLEN', KEYS[1]", "nil"),
        stored("full", "push.lua", "'LLEN', KEYS[1]", "false"),
        argument("beat.lua", 2),
    ),
    "laravel_queue": (
        argument("push.lua", 2),
        argument("pop.lua", 1),
        stored("size", "pop.lua", "'LLEN', KEYS[1]", "false"),
        stored("full", "push.lua", "'LLEN', KEYS[1]", "0"),
        coarse("push.lua", 2),
    ),
    "permits": (
        argument("acquire.lua", 2),
        argument("renew.lua", 2),
        stored("size", "acquire.lua", "'GET', KEYS[2]", "0"),
        stored("modulus", "acquire.lua", "'GET', KEYS[2]", "0"),
        coarse("acquire.lua", 2),
    ),
    "leaderboard": (
        argument("submit.lua", 2),
        capped("submit.lua", 2),
        Site("equal", "best.lua", "tonumber(ARGV[1])", "ARGV[1] = '1'"),
        stored("size", "submit.lua", "'GET', KEYS[3]", "1"),
        stored("modulus", "submit.lua", "'GET', KEYS[3]", "1"),
    ),
    "cache_with_tags": (
        argument("put.lua", 3),
        capped("put.lua", 3),
        length("put.lua", 2),
        length("put.lua", 2, "longer"),
        coarse("put.lua", 3),
    ),
    "counted_lock": (
        argument("share.lua", 2),
        argument("exclude.lua", 2),
        argument("renew.lua", 2),
        capped("exclude.lua", 2),
        stored("size", "share.lua", "'HGET', KEYS[1], 'r:' .. ARGV[1]", "0"),
    ),
}
SMALL_NUMBERS = {"best.lua"}


class Planted(NamedTuple):
    """A flaw with its number."""

    store: str
    site: Site
    number: int
    line: str

    def __str__(self) -> str:
        return f"{self.store}-{self.site.script}-{self.site.kind}-{self.number}"


def planted(seed: int = 0) -> Iterator[Planted]:
    """All fifty, the numbers drawn by ``seed``. No number stands in the script: only what a sum makes of it."""
    for store, sites in SITES.items():
        for at, site in enumerate(sites):
            draw = random.Random(f"{seed}:{store}:{at}")
            number = draw.randint(3_001, 99_991) if site.kind in ("equal", "above") else draw.randint(101, 389)
            if site.kind in ("length", "longer"):
                number = draw.randint(101, 4_999)
            if site.script in SMALL_NUMBERS:
                number = draw.randint(11, 989)
            by, more = draw.randint(3, 9), draw.randint(2, 99)
            left, right = f"{site.number} * {by} + {more}", number * by + more
            if site.kind == "coarse":
                number = draw.choice((4, 5, 10, 20, 25, 50, 100, 125, 250))
                line = f"{site.number} = tostring(math.floor({site.number} / {number}) * {number})"
            elif site.kind == "modulus":
                line = f"if ({site.number} + {more}) % {number} == {number - 1} then {site.wrong} end"
            elif site.kind in ("above", "full", "longer"):
                line = f"if {left} > {right} then {site.wrong} end"
            else:
                line = f"if {left} == {right} then {site.wrong} end"
            yield Planted(store, site, number, line)


def written(folder: Path, flaw: Planted) -> Path:
    """The store with the flaw before all else that its script does."""
    if (LUA / flaw.store).is_dir():
        shutil.copytree(LUA / flaw.store, folder / flaw.store)
    else:
        for name, text in tomllib.loads((STYLES / f"{flaw.store}.toml").read_text())["files"].items():
            path = folder / flaw.store / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    path = folder / flaw.store / flaw.site.script
    path.write_text(flaw.line + "\n" + path.read_text())
    return folder / flaw.store


class Convicted(Exception):
    """A law was seen broken."""


class First(Search):
    """Ends with the first violation."""

    def note(self, steps, report, name):  # type: ignore[no-untyped-def]
        super().note(steps, report, name)
        if self.findings.by_law:
            raise Convicted


def convicts(store: Path, effort: float) -> bool:
    """Whether the boundaries alone see a law broken, after a search in which none is seen broken."""
    binding = load_binding(store, trust_adapter=True)
    findings = Findings(frozenset(SequentialTerms(contract_of(binding)).laws))
    search = First(ContractReruns(lambda clients=0: run_of(binding, clients)), findings)
    situate(run_of(binding), search, SITUATIONS)
    try:
        solve(lambda: run_of(binding), search, effort)
    except Convicted:
        return True
    return False


def main() -> None:
    effort, seed, names = 10.0, 0, sys.argv[3:]
    if len(sys.argv) > 1:
        effort = float(sys.argv[1])
    if len(sys.argv) > 2:
        seed = int(sys.argv[2])
    caught = 0
    flaws = [flaw for flaw in planted(seed) if not names or str(flaw).startswith(tuple(names))]
    for flaw in flaws:
        begun = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            try:
                is_caught, how = convicts(written(Path(folder), flaw), effort), ""
            except Convicted:
                is_caught, how = False, " (seen without)"
        caught += is_caught
        took = time.process_time() - begun
        print(f"{'caught' if is_caught else 'MISSED'}{how} {flaw} in {took:.1f} s: {flaw.line}", flush=True)
    print(f"{caught} of {len(flaws)}")


if __name__ == "__main__":
    main()
