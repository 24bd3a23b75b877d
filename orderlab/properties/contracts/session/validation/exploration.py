"""Analysis (c): every interleaving of small scopes on a store with few packet identifiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.contract import SCOPES, Scope, message, save
from orderlab.model.contracts.session.traces import Acknowledge, Save, Step
from orderlab.model.explorer.search import Budget, Options, Search, search
from orderlab.properties.contracts.session.exploration.system import State, StoreExploration
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.validation.effort import STATES, count
from orderlab.properties.validation.findings import Findings, kind_of
from orderlab.sim.stores.binding.results import Fetched
from orderlab.sim.stores.bound import BudgetExceeded

MODULUS = 3
"""Packet identifiers in the small world: few, so that a handful of saves goes round."""
CLIENT = b"client-one"
PER_ERROR = 3
"""By how much a scope with errors gets fewer states: it has so many more steps out of each."""
PER_KIND = 2
"""Candidates told for each kind of finding and scope."""


def small_world(subject: Subject, findings: Findings) -> Subject:
    """The store with few packet identifiers, what it does remembered."""
    if subject.binding.tables is not None:  # they have few as they are
        return replace(subject, remembers=True)
    small = subject.scaled(min(MODULUS, subject.binding.modulus))
    if subject.binding.modulus <= MODULUS:
        return small
    if not small.rewritten:
        reason = "no literal 65535 in the scripts"
    elif not goes_round(small):
        reason = "packet identifiers do not go round at the literals 65535 of the scripts"
    else:
        return small
    findings.notes.append(f"{reason}: the small scope is explored on the scripts as they are")
    return replace(subject, remembers=True)


def goes_round(small: Subject) -> bool:
    """Whether scaling has reached the wrap: False when identifiers grow and grow, one by one, past twice their
    number."""
    run = small.bare_run((CLIENT,))
    given: list[int | None] = []
    for label in range(1, 2 * small.binding.modulus + 2):
        run.perform(save(0, message(label), limit=small.store.limit))
        listed = run.store.listing(CLIENT)
        given.append(listed.messages[0].packet_id if isinstance(listed, Fetched) and listed.messages else None)
        run.perform(Acknowledge(label))
    return given != list(range(1, len(given) + 1))


def explore_scopes(small: Subject, findings: Findings, effort: float) -> None:
    """Explore each scope, as many states of each as ``effort`` says. Candidates go to ``findings``, with the effort.

    A scope of which all has been seen in an earlier round is not visited again.
    """
    for scope in SCOPES:
        if not applies(scope, small) or findings.cut.get(scope.name) == "":
            continue
        run = explore_scope(small, fitted(scope, small), findings, states=count(STATES, effort))
        findings.cut[scope.name] = ""
        if not run.complete:
            findings.cut[scope.name] = f"scope {scope.name}: ended after {run.space.count:,} states, depth {run.depth}"


def fitted(scope: Scope, subject: Subject) -> Scope:
    """The scope with batches no larger than the store takes, and with the limit that its scripts fix, if they do."""
    largest = subject.store.largest_batch

    def parts(step: Save) -> Iterator[Save]:
        limit = subject.limit or step.limit
        for start in range(0, len(step.messages), largest):
            yield replace(step, messages=step.messages[start : start + largest], limit=limit)

    programs = tuple(tuple(part for step in program for part in parts(step)) for program in scope.programs)
    return replace(scope, programs=programs)


def applies(scope: Scope, subject: Subject) -> bool:
    """Whether a scope can show anything of this store."""
    if scope.name == "overlaps":
        return any(not bound.is_atomic for bound in subject.binding.operations.values())
    if scope.name == "releases":
        return "release" in subject.binding.operations
    return scope.name != "sessions" or bool({"clear", "open"} & set(subject.binding.operations))


def explore_scope(subject: Subject, scope: Scope, findings: Findings, states: int | None = None) -> Search:
    """One scope, breadth first, so many states of it. Raises BudgetExceeded once what was found is noted."""
    run = subject.run((CLIENT,))
    told: list[tuple[State, Step, Sequence[Discrepancy]]] = []
    known: Counter[object] = Counter()

    def heard(state: State, step: Step, discrepancies: Sequence[Discrepancy]) -> None:
        kinds = {(one.law, kind_of(one.law, one.text, step)) for one in discrepancies if one.law in findings.wanted}
        if any(known[kind] < PER_KIND for kind in kinds):
            known.update(kinds)
            told.append((state, step, discrepancies))

    system = StoreExploration(subject.memo, run, scope, heard=heard)
    if states is not None and scope.errors:
        states //= PER_ERROR
    done = search(system, Options(Budget(states), engine="interpreted"))
    for state, step, discrepancies in told:
        with suppress(BudgetExceeded):  # its steps are remembered, and need no more work
            trace = subject.trace((*system.path_to(done.space, state), step), (CLIENT,))
            findings.add(discrepancies, trace, f"exploration of the scope {scope.name}")
    findings.coverage.update(run.coverage)
    findings.work["states"] += done.space.count
    findings.work["transitions"] += done.space.steps
    if system.is_cut_short:
        raise BudgetExceeded
    return done
