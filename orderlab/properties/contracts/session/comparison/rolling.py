"""The rolling upgrade of a store of sessions: nodes with the old and with the new script on the same data.

Which version serves changes at any moment, forth and back (the step ``Serve``): in every scenario of validate, in
random walks, and in the small scopes, where every interleaving is visited. What the old one wrote is then read by the
new one, and after a rollback the other way. A law counts as broken here if neither version breaks it alone by the same
steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.contracts.session.traces import Serve, Step, Trace
from orderlab.properties.comparison.differences import ROLLING_BY, Cap, Change, RollingUpgrade, has_library
from orderlab.properties.contracts.session.subject import (
    CLIENTS,
    Reruns,
    Subject,
    fitted_step,
    take_steps,
)
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.scenarios import SCENARIOS
from orderlab.properties.contracts.session.validation.validation import TERMS
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.confirmation import SessionPerformer
from orderlab.properties.contracts.session.witness.explanation import explain
from orderlab.properties.contracts.session.witness.full_scale import as_it_stands
from orderlab.properties.contracts.session.witness.plainer import minimise
from orderlab.properties.engine.versions import ONE_LIBRARY, InTheMix, change_of, in_the_mix, not_searched
from orderlab.properties.validation.effort import STATES, WALKS, count
from orderlab.properties.validation.findings import Finding, Findings
from orderlab.properties.validation.work_order import Progress, WorkOrder
from orderlab.properties.witness.confirmation import Confirmer
from orderlab.properties.witness.witness import Explanation
from orderlab.sim.stores.binding.binding import NEW, OLD, Binding
from orderlab.sim.stores.bound import CpuBudget

TRIED_MAX = 12
"""Traces in which a law fell in the mix that are tried on either version alone, for each law."""


class MixReruns(InTheMix, Reruns):
    """Traces on both versions, beside each version alone."""

    def __init__(self, subject: Subject, alone: Iterable[Subject]) -> None:
        super().__init__(subject)
        self.alone = tuple(map(Reruns, alone))

    def by_one(self, trace: Trace) -> Trace:
        """Without the changes of who serves."""
        return replace(trace, steps=tuple(one for one in trace.steps if not isinstance(one, Serve)))


def rolling_upgrade(old: Binding, new: Binding, laws: Sequence[str], order: WorkOrder, cap: Cap) -> RollingUpgrade:
    """What the two break together."""
    mixed, seed, progress = replace(new, base=old), order.seed, order.progress
    reason = _not_on_the_same_data(old, new, seed)
    if reason:
        return not_searched(reason)
    large, findings = Subject(mixed, seed), Findings(frozenset(laws))
    small = small_world(large, findings)
    scope: list[str] = []
    cap.limit(large.cpu_budget, ROLLING_BY)
    with cap.within("rolling upgrade"):
        scope += _search(small, findings, order.effort, progress)
    large.cpu_budget.lift()
    alone = [Subject(one, seed) for one in (old, new)]
    modulus = small.binding.modulus
    on_small = MixReruns(small, [one.scaled(modulus, remembers=False) for one in alone] if small.rewritten else alone)
    on_large = MixReruns(large, alone)
    confirmer = Confirmer(order.backend, SessionPerformer(mixed, lambda *_: None), CpuBudget())

    broken = in_the_mix(
        laws, findings, lambda one: one.size, TRIED_MAX, lambda one: _change(one, on_small, on_large, confirmer, order)
    )
    gaps = (
        *findings.gaps,
        "in a rolling upgrade what stays behind in keys is not judged: each version has a layout of its own",
    )
    return RollingUpgrade(broken, tuple(scope), gaps)


def _not_on_the_same_data(old: Binding, new: Binding, seed: int) -> str:
    """Why the two do not meet on the same data, if so."""
    if has_library(old) or has_library(new):
        return ONE_LIBRARY
    if Subject(old, seed).store.capabilities != Subject(new, seed).store.capabilities or old.fixed != new.fixed:
        return "the two bindings promise their callers different things"
    return ""


def _search(small: Subject, findings: Findings, effort: float, progress: Progress) -> Iterator[str]:
    """Fill ``findings``; says how far it went."""
    progress("rolling upgrade: scenarios")
    for name, steps in SCENARIOS.items():
        for served in _served([fitted_step(step, small) for step in steps]):
            take_steps(small, small.run(CLIENTS), served, findings, f"the scenario '{name}' in a rolling upgrade")
    walks = count(WALKS, effort)
    progress("rolling upgrade: random walks")
    walk_about(small, findings, walks)
    yield (
        f"rolling upgrade: every scenario of validate and {walks} random walks, served by the old and the new "
        "scripts in turn"
    )
    for scope in SCOPES:
        if scope.name == "overlaps" or not applies(scope, small):
            continue
        progress(f"rolling upgrade: scope {scope.name}")
        done = explore_scope(small, fitted(scope, small), findings, states=count(STATES, effort))
        how_far = "all of it" if done.complete else f"to depth {done.depth}"
        yield (
            f"rolling upgrade: scope {scope.name}, each call served by either version: {done.space.count:,} "
            f"states, {how_far}"
        )


def _served(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps with the versions in turn, beginning with either, and with one upgrade or rollback in the middle."""
    for first in (OLD, NEW):
        turns: list[Step] = []
        for number, step in enumerate(steps):
            turns += [Serve((OLD, NEW)[(number + (first == NEW)) % 2]), step]
        yield turns
        middle = len(steps) // 2
        yield [Serve(first), *steps[:middle], Serve(NEW if first == OLD else OLD), *steps[middle:]]


def _change(
    found: Finding, on_small: MixReruns, on_large: MixReruns, confirmer: Confirmer, order: WorkOrder
) -> Change | None:
    """The finding with its shortest steps; None if one of the versions breaks the law alone."""
    law, mixed = found.law, on_large.subject.binding
    if on_small.law_broken(found.trace, law) is None:
        return None
    order.progress(f"rolling upgrade: a witness of {law}")
    trace = minimise(found.trace, law, on_small, wording=found.kind.wording)
    is_small = trace.modulus != mixed.modulus
    full = as_it_stands(trace, law, mixed.modulus, on_large) if is_small else trace
    reruns = on_small if full is None else on_large
    if full is not None:
        trace = minimise(full, law, on_large)
    shows = Reruns(reruns.subject.recording()) if reruns.subject.remembers else reruns

    def confirmed(trace: Trace, explanation: Explanation) -> str:
        if full is None:
            return f"with {trace.modulus} packet identifiers only"
        return confirmer.words(trace, law, explanation.exhausts)

    return change_of(
        found, trace, mixed, reruns, lambda one: explain(shows, one), confirmed, order, TERMS, full is not None
    )
