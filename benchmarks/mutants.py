"""How much a green validation is worth: mutants of ``lua/session``, drawn by a seed, and how many are noticed.

Processor time is counted, from a warm process to the witness on the unscaled script, so other work on the machine does
not matter. There is no peer: no other tool mutates Lua scripts and judges them by the laws of a queue.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.timing import report
from orderlab.properties.contracts.session.mutation.judging import DEFAULT_BUDGET_S
from orderlab.properties.mutants.campaign import Campaign, Score
from orderlab.properties.mutants.mutant import sample
from orderlab.properties.mutants.operators import mutants_of
from orderlab.sim.stores.binding.loader import load_binding

STORE = Path(__file__).parents[1] / "lua" / "session"
MUTANTS = 160
QUICK_BUDGET_S = 5.0
SEED = 0
TO_REACH = {"score": (">=", 0.97), "mutants": (">=", 150.0), "median_s_to_kill": ("<=", 2.0)}


def run(quick: bool = False) -> dict[str, Any]:
    """Measure; the benchmark's report. About a quarter of an hour on two quiet cores, a third of that if quick."""
    binding = load_binding(STORE)
    mutants = sample(mutants_of(binding), MUTANTS, SEED)
    budget_s = QUICK_BUDGET_S if quick else DEFAULT_BUDGET_S
    campaign = Campaign(binding, mutants, SEED, budget_s, os.cpu_count() or 1)
    score = Score(campaign.run())
    figures = {
        "score": score.score,
        "mutants": float(len(score.judged)),
        "median_s_to_kill": score.median_s_to_kill,
    }
    detail = {
        "seed": SEED,
        "budget_s": budget_s,
        "outcomes": score.outcomes,
        "by_operator": score.by_operator(),
        "by_law": score.by_law(),
        "survivors": [one.to_json() for one in score.survivors],
        "scope_of_equivalence": campaign.scope,
        "peers": {},
    }
    return report("mutants", figures, detail)
