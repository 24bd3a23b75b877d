"""The two explorers of session stores side by side: which laws each sees broken, after how many steps, at what cost.

`validate` visits the scopes of `model/contracts/session/contract.py`, `explore store` the system with writers, readers and trouble. Both get about as
many states. Run it from the root of the repository: `python -m benchmarks.store_explorers`.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from orderlab import program
from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.exploration.scope import Scope
from orderlab.properties.contracts.session.exploration.system import StoreExploration
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.subject import Subject
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BudgetExceeded
from tests.properties.session_variants import BROKEN, LAWFUL

LUA = Path(__file__).parents[1] / "lua"
STATES = 200
"""Of each scope of `validate`; the other explorer gets as many in all."""
OTHERS = (
    Scope(messages=3, lost_replies=1, crashes=1, script_flush=1),
    Scope(messages=3, modulus=2, expiries=1),
    Scope(messages=2, qos=2, errors=1, duplicates=1),
    Scope(messages=2, clears=1, expiries=1),
)


def by_scopes(binding: Binding) -> tuple[dict[str, int], int]:
    """Law -> steps of the shortest way to break it, and states, in the scopes of `validate`."""
    findings = Findings(frozenset(STORE_LAWS))
    small = small_world(Subject(binding), findings)
    for scope in SCOPES:
        if applies(scope, small):
            with suppress(BudgetExceeded):
                explore_scope(small, fitted(scope, small), findings, states=STATES)
    return {law: len(found[0].trace.steps) for law, found in findings.by_law.items()}, findings.work["states"]


def by_system(binding: Binding) -> tuple[dict[str, int], int]:
    """The same in the system of `explore store`."""
    found: dict[str, int] = {}
    states = 0
    for scope in OTHERS:
        share = Budget(STATES * len(SCOPES) // len(OTHERS))
        done = explore(StoreExploration(binding, scope), Options(share, keep_going=True, allow_vacuous=True))
        states += done.distinct_states
        for verdict in done.verdicts:
            steps: Any = getattr(verdict.witness, "steps", None)
            if verdict.outcome is Outcome.VIOLATED and steps is not None:
                found[verdict.law] = min(found.get(verdict.law, len(steps)), len(steps))
    return found, states


def main() -> None:
    """One line of JSON a store, then the sums."""
    loaded = [load_binding(file.parent, trust_adapter=True) for file in sorted((LUA / "specimens").glob("*/store.toml"))]
    stores = [(one.name, one) for one in [load_binding(LUA / "session"), *loaded] if one.contract is None]
    stores += [(one.name, one.binding()) for one in (*BROKEN[::8], *LAWFUL[::12])]
    sums = {"scopes": [0, 0, 0.0], "system": [0, 0, 0.0]}
    for name, binding in stores:
        told: dict[str, Any] = {"store": name}
        for explorer, search in (("scopes", by_scopes), ("system", by_system)):
            began_s = time.process_time()
            laws, states = search(binding)
            cpu_s = time.process_time() - began_s
            told[explorer] = {"laws": laws, "states": states, "cpu_s": round(cpu_s, 1)}
            for place, value in enumerate((len(laws), states, cpu_s)):
                sums[explorer][place] += value
        print(json.dumps(told), flush=True)
    print(json.dumps({"stores": len(stores), **{one: dict(zip(("laws", "states", "cpu_s"), some, strict=True)) for one, some in sums.items()}}))


if __name__ == "__main__":
    program.run(main, "store-explorers")
