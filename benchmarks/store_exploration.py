"""Transitions a second with the real scripts of ``lua/session``: 2 writers, 1 reader, 4 messages, each step judged.

Counted in seconds of one core (CPU time of this process), from an empty memory: finding out what the scripts do, judging
it, and the search itself. Crashes, lost replies and script-cache flushes may strike, each once on a path.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from orderlab.model.explorer.search import Options, search
from orderlab.properties.contracts.session.exploration.scope import Scope
from orderlab.properties.contracts.session.exploration.system import StoreExploration
from orderlab.sim.stores.binding.loader import load_binding

STORE = Path(__file__).parents[1] / "lua" / "session"
SCOPE = Scope(writers=2, readers=1, messages=4, crashes=1, lost_replies=1, script_flush=1)


def measure(rounds: int) -> tuple[float, dict[str, Any]]:
    """The median of ``rounds`` whole explorations, and what was explored."""
    binding = load_binding(STORE)
    rates: list[float] = []
    states = transitions = 0
    for _ in range(rounds):
        begun_s = time.process_time()
        done = search(StoreExploration(binding, SCOPE), Options())
        rates.append(done.space.steps / (time.process_time() - begun_s))
        assert done.complete
        assert not done.violated()
        states, transitions = done.space.count, done.space.steps
    detail = {"distinct_states": states, "transitions": transitions, "per_s": [round(rate) for rate in rates]}
    return statistics.median(rates), {**detail, "seconds": "CPU time of one core, memory empty at first"}
