"""How soon a flaw is found: examples and processor seconds until a law that a specimen breaks is first seen broken.

Each way to look by itself: Hypothesis on the store at full scale; exploration of the small scopes, in their order;
random walks of clients, time and faults on the store alone; and, for stores that a simulated broker can run
(``orderlab.sim.systems``), simulation of the whole system under random schedules of faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.contract import SCOPES, Scope
from orderlab.model.explorer.search import Budget, Options, search
from orderlab.model.laws import STORE_LAWS
from orderlab.model.spec.transition_system import Label
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.contracts.session.exploration.system import State, StoreExploration
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.subject import Prepared, Subject
from orderlab.properties.contracts.session.validation.exploration import CLIENT, applies, fitted, small_world
from orderlab.properties.contracts.session.validation.machine import (
    SMALLEST_PASSING,
    machine_for,
    near_the_wrap,
    run_examples,
)
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.validation.findings import Findings
from orderlab.sim.engine.random_streams import RandomStreams
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.systems.settings import STORES
from tests.laboratory.pipeline_machine import simulate
from tests.laboratory.schedules import ANYWHERE, ROUND_MS, WAITING, Strike, publishing_ms

RIGHT = "session"
SIMULATED = frozenset(STORES) - {RIGHT}
"""Flawed stores that the simulated broker can run, by the names of its setting ``scripts``."""


class Found(NamedTuple):
    """One search for one flaw."""

    law: str
    """The first that broke; empty when none did in time."""
    searched: int
    """Examples, states or walks until then."""
    cpu_s: float


def by_hypothesis(binding: Binding, seed: int, seconds: float) -> Found:
    """Examples of the state machine, from an empty store and from near the wrap in turns."""
    began = time.process_time()
    subject, findings = Subject(binding, seed), _findings(binding)
    places = [Prepared(subject, ())]
    if subject.store.largest_batch >= SMALLEST_PASSING:
        places.append(Prepared(subject, near_the_wrap(subject)))
    count = 0

    def is_over() -> bool:
        return bool(findings.by_law) or time.process_time() - began > seconds

    rounds = 0
    while not is_over():
        machine = machine_for(places[rounds % len(places)], findings, is_over)
        counted = _Counted(machine.make_run, lambda: not is_over())
        machine.make_run = counted
        run_examples(machine, seed * 1000 + rounds)
        count += counted.calls
        rounds += 1
    return Found(_law(findings), count, time.process_time() - began)


class _Counted:
    """A function that counts its calls while ``counts`` says so."""

    def __init__(self, function: Callable[[], SessionRun], counts: Callable[[], bool]) -> None:
        self._function, self._counts, self.calls = function, counts, 0

    def __call__(self) -> SessionRun:
        self.calls += self._counts()
        return self._function()


class _Enough(Exception):
    """The flaw has been found, or there is no time left."""


class _CountingSystem(StoreExploration):
    """Counts the states that are left."""

    expanded = 0

    def successors(self, state: State) -> list[tuple[Label, State]]:
        self.expanded += 1
        return super().successors(state)


def by_exploration(binding: Binding, seed: int, seconds: float) -> Found:
    """States expanded, scope after scope. Nothing is drawn: every seed gives the same count."""
    began = time.process_time()
    findings = _findings(binding)
    small = small_world(Subject(binding, seed), findings)
    count, law = 0, ""
    scopes = [fitted(scope, small) for scope in SCOPES if applies(scope, small)]
    for at, scope in enumerate(scopes):
        left = seconds - (time.process_time() - began)
        law, expanded = _explore_until_found(small, scope, findings.wanted, max(left, 0.1) / (len(scopes) - at))
        count += expanded
        if law:
            break
    return Found(law, count, time.process_time() - began)


def _explore_until_found(small: Subject, scope: Scope, wanted: frozenset[str], seconds: float) -> tuple[str, int]:
    laws: list[str] = []

    def heard(state: State, step: object, discrepancies: Sequence[Discrepancy]) -> None:
        laws.extend(one.law for one in discrepancies if one.law in wanted)
        if laws:
            raise _Enough

    system = _CountingSystem(small.memo, small.run((CLIENT,)), scope, heard=heard)
    with suppress(_Enough):
        search(system, Options(Budget(None, seconds), engine="interpreted"))
    return (laws[0] if laws else ""), system.expanded


def by_walks(binding: Binding, seed: int, seconds: float) -> Found:
    """Random walks with random faults in virtual time."""
    began = time.process_time()
    findings = _findings(binding)
    small = small_world(Subject(binding, seed), findings)
    while not findings.by_law and time.process_time() - began < seconds:
        walk_about(small, findings, 1, findings.work["walks"])
    return Found(_law(findings), findings.work["walks"], time.process_time() - began)


def by_simulation(binding: Binding, seed: int, seconds: float) -> Found:
    """Runs of the whole system under random faults, until one breaks a law that the same run with the store beside the
    specimen does not: faults break laws of their own, whatever the store is. For a name of ``SIMULATED``."""
    began = time.process_time()
    count, broken = 0, set[str]()
    while not broken and time.process_time() - began < seconds:
        draw = RandomStreams(seed).stream(f"schedule {count}")
        strikes = [
            Strike(
                ROUND_MS * draw.randint(1, publishing_ms(WAITING) // ROUND_MS),
                draw.choice(ANYWHERE),
                draw.randint(0, 1),
            )
            for _ in range(draw.randint(1, 3))
        ]
        settings = {**WAITING, "limit": draw.choice([3, 10_000]), **draw.choice([{}, {"expiry_s": 1}])}
        found = [
            {verdict.law for verdict in simulate({**settings, "scripts": scripts}, strikes, seed) if is_broken(verdict)}
            for scripts in (binding.name, RIGHT)
        ]
        broken = found[0] - found[1]
        count += 1
    return Found(min(broken, default=""), count, time.process_time() - began)


def is_broken(verdict: Verdict) -> bool:
    """Whether a law is violated."""
    return verdict.outcome is Outcome.VIOLATED


def methods_for(binding: Binding) -> dict[str, Callable[[Binding, int, float], Found]]:
    """Those that can look at a store."""
    return METHODS | ({"simulation": by_simulation} if binding.name in SIMULATED else {})


METHODS: dict[str, Callable[[Binding, int, float], Found]] = {
    "hypothesis": by_hypothesis,
    "exploration": by_exploration,
    "walks": by_walks,
}
"""By name; each takes a binding, a seed and the seconds after which it gives up."""


def _findings(binding: Binding) -> Findings:
    laws = binding.specimen.breaks if binding.specimen is not None else STORE_LAWS
    return Findings(frozenset(laws))


def _law(findings: Findings) -> str:
    return next(iter(findings.by_law), "")
