"""Stores of sessions, old against new: laws newly broken, laws newly kept, and what else is different, each with its
shortest witness."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.contracts.session.traces import Churn, Trace, told_step
from orderlab.model.errors import InputError
from orderlab.properties.comparison.differences import (
    KINDS,
    PRODUCT_BY,
    Cap,
    Change,
    Comparison,
    Difference,
    RollingUpgrade,
)
from orderlab.properties.contracts.session.comparison.rolling import rolling_upgrade
from orderlab.properties.contracts.session.mutation.equivalence import long_run
from orderlab.properties.contracts.session.product import ComparedSubject
from orderlab.properties.contracts.session.subject import Reruns, Subject
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.machine import run_machine
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.validation import SessionValidation, is_counted, laws_of, validate
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.explanation import explain
from orderlab.properties.contracts.session.witness.full_scale import as_it_stands, with_fewer_steps
from orderlab.properties.contracts.session.witness.plainer import minimise
from orderlab.properties.engine.versions import compare_versions, dearer_or_cheaper, difference_of, first_of_each
from orderlab.properties.validation.effort import QUICK, STATES, WALKS, count
from orderlab.properties.validation.findings import Finding, Findings
from orderlab.properties.validation.validation import Validation
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine
from orderlab.sim.stores.bound import BudgetExceeded

PASSING_STEPS = 5_000
"""For making short what shows after a round of all identifiers only, for all such differences together: one round at
full scale, and as many steps in rehearsal."""


def compare(old: Binding, new: Binding, order: WorkOrder) -> Comparison:
    """Judge the change from ``old`` to ``new``. Raises InputError where the two cannot be held against each other."""
    if old.modulus != new.modulus:
        raise InputError(f"{new.place}: --base {old.place} has {old.modulus:,} packet identifiers, not {new.modulus:,}")

    def search_of(old_common: Binding, new_common: Binding, cap: Cap) -> Search:
        return Search(old_common, new_common, order, cap)

    return compare_versions(old, new, order, validate, laws_of, is_counted, search_of)


class Search:
    """The product of both scripts, searched for differences."""

    def __init__(self, old: Binding, new: Binding, order: WorkOrder, cap: Cap | None = None) -> None:
        self.cap = cap or Cap(None)
        self.old, self.new, self.order, self.progress = old, new, order, order.progress
        seed = order.seed
        self.findings = Findings(frozenset(KINDS))
        self.scope: list[str] = []
        self.gaps: list[str] = []
        self.alone = tuple(Reruns(Subject(one, seed)) for one in (old, new))
        self.large = ComparedSubject(new, seed, remembers=True, old=old)
        self.small = small_world(self.large, self.findings)
        self.of_many = Reruns(self.large)
        """Of traces in which all identifiers pass; what it may take is shared by all differences."""
        self.of_many.allow(PASSING_STEPS)
        self._alone: dict[int, tuple[Reruns, Reruns]] = {}

    @property
    def work(self) -> Mapping[str, float]:
        """Of the search of both."""
        return self.findings.work

    def differences(self, newly: Sequence[Change] = ()) -> tuple[Difference, ...]:
        """The shortest one for each kind and operation; then a long run, of an effort that is worth it."""
        self.cap.limit(self.large.cpu_budget, PRODUCT_BY)
        with self.cap.within("both"):
            self._search()
        self.large.cpu_budget.lift()
        on_small, on_large = Reruns(self.small), Reruns(self.large)
        found = first_of_each(
            self.findings,
            lambda one: (one.kind.fault != "", one.size),
            lambda one: _operation(one.text),
            lambda one: self._difference(one, on_small, on_large),
        )
        if self.order.effort < QUICK:
            self.gaps.append(f"an effort below {QUICK:g} (quick) compares no long run of thousands of messages")
        elif not self.cap.cuts:
            self.take_long_run()
        return found

    def costs(self, before: Validation, after: Validation) -> Iterator[str]:
        """By situation and length."""
        assert isinstance(before, SessionValidation)
        assert isinstance(after, SessionValidation)
        return cost_changes(before, after)

    def rolling_upgrade(self, laws: Sequence[str], seen: Set[tuple[str, str]] = frozenset()) -> RollingUpgrade:
        """Both versions on the same data."""
        return rolling_upgrade(self.old, self.new, laws, self.order, self.cap)

    def _search(self) -> None:
        small, findings = self.small, self.findings
        self.progress("both: scenarios")
        run_scenarios(small, findings)
        walks = count(WALKS, self.order.effort)
        self.progress("both: random walks")
        walk_about(small, findings, walks)
        self.scope.append(f"every scenario of validate and {walks} random walks")
        for scope in SCOPES:
            if scope.name == "overlaps" or not applies(scope, small):
                continue
            self.progress(f"both: scope {scope.name}")
            done = explore_scope(small, fitted(scope, small), findings, states=count(STATES, self.order.effort))
            how_far = "all of it" if done.complete else f"to depth {done.depth}"
            self.scope.append(f"scope {scope.name}: {done.space.count:,} pairs of keyspaces, {how_far}")
        self.progress("both: state machine")
        places = "from an empty store and from near the wrap of the identifiers"
        try:
            run_machine(self.large, findings, count(1, self.order.effort))
        except BudgetExceeded:
            if self.large.store.carried_left >= 0 and self.large.store.other.carried_left >= 0:
                raise
            places = "as far as the steps went"
            self.gaps.append(
                "the state machine did not come past the wrap of the identifiers: keys grow with what has passed"
            )
        self.scope.append(f"the state machine on the scripts as they are, {places}")
        if any(not bound.is_atomic for bound in self.new.operations.values()):
            self.gaps.append("operations of several calls were compared without others between their calls")

    def _difference(self, found: Finding, on_small: Reruns, on_large: Reruns) -> Difference:
        self.progress(f"both: a witness of {found.law}")
        is_small = found.trace.modulus != self.new.modulus
        if any(isinstance(step, Churn) for step in found.trace.steps):
            return self._told(*self.with_fewer(found, on_large), found.law)
        trace = minimise(found.trace, found.law, on_small if is_small else on_large, wording=found.kind.wording)
        lines: tuple[RewrittenLine, ...] = ()
        if is_small:
            full = as_it_stands(trace, found.law, self.new.modulus, on_large)
            if full is None:
                lines = tuple(self.small.rewritten)
            else:
                trace = minimise(full, found.law, on_large)
        shown = (on_small if lines else on_large).law_broken(trace, found.law)
        return self._told(trace, shown[1] if shown else found.text, found.law, lines)

    def with_fewer(self, found: Finding, on_large: Reruns) -> tuple[Trace, str]:
        """Without the messages that pass, if it shows so; else with fewer steps around them, as far as the steps go
        that all such differences share. And the words."""
        law, trace = found.law, found.trace
        without = replace(trace, steps=tuple(step for step in trace.steps if not isinstance(step, Churn)))
        try:
            if on_large.law_broken(without, law, found.kind.wording) is not None:
                trace = minimise(without, law, on_large, wording=found.kind.wording)
                shown = on_large.law_broken(trace, law)
            else:
                trace = with_fewer_steps(trace, law, self.of_many)
                shown = self.of_many.law_broken(trace, law)
        except BudgetExceeded:
            self.gaps.append(f"as it was found, not made short, for it takes too many steps: {found.text}")
            return found.trace, found.text
        return trace, shown[1] if shown else found.text

    def _told(self, trace: Trace, text: str, kind: str, lines: tuple[RewrittenLine, ...] = ()) -> Difference:
        """With what either version answers."""
        trace = replace(trace, law="", store=str(self.new.path), seed=self.order.seed)
        return difference_of(
            kind, text, trace, self._plain(trace.modulus), lambda step: told_step(step, trace), explain, lines
        )

    def _plain(self, modulus: int) -> tuple[Reruns, Reruns]:
        """Each version alone, the new one first: once for all differences, which share the way round all
        identifiers."""
        if modulus not in self._alone:
            new, old = (
                Reruns(one if modulus == one.binding.modulus else one.scaled(modulus, remembers=False))
                for one in (Subject(binding, self.order.seed) for binding in (self.new, self.old))
            )
            self._alone[modulus] = new, old
        return self._alone[modulus]

    def take_long_run(self) -> None:
        """Thousands of messages on both, compared by their replies; what differs there is a gap, for it has no short
        witness."""
        self.progress("both: a long run")
        length = 0
        for length, (ours, theirs) in enumerate(zip(long_run(self.new), long_run(self.old), strict=False), 1):
            if ours.replies != theirs.replies:
                self.gaps.append(
                    f"a long run of thousands of messages differs from its operation {length} ({ours.operation}) on: "
                    "no short witness was made of that"
                )
                break
        else:
            self.scope.append(
                f"a run of {length} operations on queues of thousands of messages, identifiers going round"
            )


def _operation(text: str) -> str:
    return " ".join(text.split(" ", 2)[:2]) if text.startswith("afterwards") else text.split(" ", 1)[0]


def cost_changes(before: SessionValidation, after: SessionValidation) -> Iterator[str]:
    """Where the new scripts take more or fewer commands, or more or less of a server's time, than the old ones."""
    old, new = before.footprint.costs, after.footprint.costs
    for situation in sorted(set(old) & set(new)):
        for length in sorted(set(old[situation]) & set(new[situation])):
            (calls_before, ms_before), (calls, ms) = old[situation][length], new[situation][length]
            word = dearer_or_cheaper((ms_before, calls_before), (ms, calls))
            if word:
                yield (
                    f"{word}: {situation}, queue of {length:,}: {calls:,} commands and {ms:.2f} ms, "
                    f"before {calls_before:,} and {ms_before:.2f} ms"
                )
