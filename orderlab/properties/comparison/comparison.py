"""A change of scripts judged: laws newly broken, laws newly kept, and what else is different, each with its shortest witness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.contracts.session.steps import Trace
from orderlab.model.errors import InputError, WorkerDied
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome
from orderlab.properties.comparison.product import KINDS, ComparedSubject
from orderlab.properties.contracts.kind import SCRIPT_SECONDS_MAX, unsupported
from orderlab.properties.contracts.session.mutation.equivalence import long_run
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.machine import run_machine
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.subject import Reruns, Subject
from orderlab.properties.contracts.session.validation.validation import SessionValidation, is_counted, validate
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.explanation import explain
from orderlab.properties.contracts.session.witness.full_scale import as_it_stands
from orderlab.properties.contracts.session.witness.plainer import minimise
from orderlab.properties.validation.effort import QUICK, STATES, WALKS, count
from orderlab.properties.validation.findings import Finding, Findings
from orderlab.properties.witness.witness import Explanation, Witness
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.lua.watchdog import Finished, watch
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine

DIFFERENCES_MAX = 5
"""Told of each kind: one for each operation."""
CHEAPER = 0.05
"""By which part the commands or the time of an operation must differ to be told."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Difference:
    """A call that the two scripts do otherwise, with the shortest steps that lead there."""

    kind: str
    text: str
    trace: Trace
    new: Explanation
    old: Explanation
    breaks: tuple[str, ...]
    """Laws that the new scripts break at the last step."""
    broke: tuple[str, ...]
    """The same of the old ones."""
    small_scope: tuple[RewrittenLine, ...] = ()
    """The rewritten lines, where it was seen with few packet identifiers only."""


@dataclass(frozen=True)
class Change:
    """A law that the change concerns, with a witness on the scripts that break it."""

    law: str
    witness: Witness


@dataclass(frozen=True)
class Comparison:
    """What changed from the old scripts to the new ones."""

    old: Binding
    new: Binding
    is_same_text: bool
    before: SessionValidation | None
    """Of the old scripts; None where the texts are the same."""
    after: SessionValidation
    newly_broken: tuple[Change, ...] = ()
    fixed: tuple[Change, ...] = ()
    still_broken: tuple[Change, ...] = ()
    no_longer_known: tuple[str, ...] = ()
    """Laws that held before and are undecided now."""
    differences: tuple[Difference, ...] = ()
    costs: tuple[str, ...] = ()
    """Situations that take more or less work than before, in words."""
    scope: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    work: dict[str, float] = field(default_factory=dict)

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing differs in all that was compared."""
        return self.is_same_text or not (self.differences or self.newly_broken or self.fixed)

    def outcome(self, is_strict: bool = False) -> Outcome:
        """Violated if a law is newly broken; with ``is_strict`` also if one still is."""
        if self.newly_broken or (is_strict and self.still_broken):
            return Outcome.VIOLATED
        return Outcome.UNKNOWN if self.no_longer_known else Outcome.HOLDS


def compare(
    old: Binding,
    new: Binding,
    effort: float,
    seed: int = 0,
    backend: Backend | None = None,
    progress: Progress = lambda text: None,
    laws: Sequence[str] = STORE_LAWS,
) -> Comparison:
    """Judge the change from ``old`` to ``new`` by ``laws``. Raises InputError where the two cannot be held against each other."""
    check_comparable(old, new)
    after = validate(new, effort, seed, laws, backend, lambda text: progress(f"new: {text}"))
    if has_same_text(old, new):
        broken = tuple(Change(one.finding.law, one) for one in _witnesses(after))
        return Comparison(old, new, True, None, after, still_broken=broken, gaps=after.gaps)
    before = validate(old, effort, seed, laws, backend, lambda text: progress(f"old: {text}"))
    on_old, on_new = Reruns(Subject(old, seed)), Reruns(Subject(new, seed))
    newly, still = _sorted(after, on_old, before)
    fixed, also_still = _sorted(before, on_new, after)
    known = {one.law for one in still}
    still += [one for one in also_still if one.law not in known]
    outcomes = {result.verdict.law: result.outcome for result in before.results}
    no_longer = tuple(
        result.verdict.law
        for result in after.results
        if result.outcome is Outcome.UNKNOWN and outcomes.get(result.verdict.law) is Outcome.HOLDS and not result.not_applicable
    )
    search = Search(old, new, effort, seed, progress)
    differences = search.differences()
    if effort >= QUICK:
        search.take_long_run()
    else:
        search.gaps.append(f"an effort below {QUICK:g} (quick) compares no long run of thousands of messages")
    return Comparison(
        old, new, False, before, after, tuple(newly), tuple(fixed), tuple(still), no_longer, differences,
        tuple(cost_changes(before, after)), tuple(search.scope), (*after.gaps, *search.gaps), dict(search.findings.work),
    )  # fmt: skip


def compare_watched(
    old: Binding,
    new: Binding,
    effort: float,
    seed: int = 0,
    backend: Backend | None = None,
    progress: Progress = lambda text: None,
    laws: Sequence[str] = STORE_LAWS,
) -> Comparison:
    """As ``compare``, in a process of its own. Raises WorkerDied when it ended by itself, and InputError for a script that
    could only be ended together with it."""
    try:
        answer = watch(lambda: compare(old, new, effort, seed, backend, progress, laws), script_seconds_max=SCRIPT_SECONDS_MAX)
    except UnsupportedCommand as error:
        raise InputError(unsupported(new, error)) from None
    if isinstance(answer, Finished):
        return answer.value
    if answer.died:
        raise WorkerDied(f"{new.place}: the comparison ended unfinished: {answer.reason}")
    raise InputError(f"{new.place}: a script does not end: {answer.reason}; validate each of the two alone")


def check_comparable(old: Binding, new: Binding) -> None:
    """Raises InputError unless both are stores of one kind with the same operations and numbers of packet identifiers."""
    if (old.contract is None) != (new.contract is None):
        raise InputError(f"{new.place}: --base {old.place} has another contract; compare stores of one kind")
    missing = sorted(set(old.operations) ^ set(new.operations))
    if missing:
        raise InputError(f"{new.place}: --base {old.place}: only one of them has {', '.join(missing)}; compare what both have")
    if old.modulus != new.modulus:
        raise InputError(f"{new.place}: --base {old.place} has {old.modulus:,} packet identifiers, not {new.modulus:,}")


def has_same_text(old: Binding, new: Binding) -> bool:
    """Whether scripts and binding are the same, but for where they lie."""
    scripts = [sorted((one.path.name, one.source) for one in binding.scripts) for binding in (old, new)]
    texts = [(binding.path / "store.toml" if binding.path.is_dir() else binding.path).read_bytes() for binding in (old, new)]
    return scripts[0] == scripts[1] and texts[0] == texts[1]


def _witnesses(found: SessionValidation) -> Iterator[Witness]:
    for result in found.results:
        for one in (result.verdict.witness, *result.others):
            if isinstance(one, Witness):
                yield one


def _sorted(found: SessionValidation, others: Reruns, other: SessionValidation) -> tuple[list[Change], list[Change]]:
    """The witnesses of a validation: those that the other scripts do not show, and those that they do.

    What is seen by counting calls and keys is not shown by steps: there the other validation's verdict decides.
    """
    only: list[Change] = []
    both: list[Change] = []
    outcomes = {result.verdict.law: result.outcome for result in other.results}
    for one in _witnesses(found):
        law = one.finding.law
        if is_counted(one.finding):
            shows = outcomes.get(law) is Outcome.VIOLATED
        else:
            shows = others.law_broken(one.finding.trace, law) is not None
        (both if shows else only).append(Change(law, one))
    return only, both


class Search:
    """The product of both scripts, searched for differences."""

    def __init__(self, old: Binding, new: Binding, effort: float, seed: int, progress: Progress) -> None:
        self.old, self.new, self.effort, self.seed, self.progress = old, new, effort, seed, progress
        self.findings = Findings(frozenset(KINDS))
        self.scope: list[str] = []
        self.gaps: list[str] = []
        self.large = ComparedSubject(new, seed, remembers=True, old=old)
        self.small = small_world(self.large, self.findings)

    def differences(self) -> tuple[Difference, ...]:
        """The shortest one for each kind and operation."""
        self._search()
        on_small, on_large = Reruns(self.small), Reruns(self.large)
        told: dict[tuple[str, str], Difference] = {}
        for kind in KINDS:
            candidates = sorted(self.findings.by_law.get(kind, ()), key=lambda one: one.size)
            for one in candidates:
                head = kind, _operation(one.text)
                if head in told or sum(known[0] == kind for known in told) >= DIFFERENCES_MAX:
                    continue
                told[head] = self._difference(one, on_small, on_large)
        return tuple(told.values())

    def _search(self) -> None:
        small, findings = self.small, self.findings
        self.progress("both: scenarios")
        run_scenarios(small, findings)
        walks = count(WALKS, self.effort)
        self.progress("both: random walks")
        walk_about(small, findings, walks)
        self.scope.append(f"every scenario of validate and {walks} random walks")
        for scope in SCOPES:
            if scope.name == "overlaps" or not applies(scope, small):
                continue
            self.progress(f"both: scope {scope.name}")
            done = explore_scope(small, fitted(scope, small), findings, states=count(STATES, self.effort))
            how_far = "all of it" if done.complete else f"to depth {done.depth}"
            self.scope.append(f"scope {scope.name}: {done.space.count:,} pairs of keyspaces, {how_far}")
        self.progress("both: state machine")
        run_machine(self.large, findings, count(1, self.effort), crosses_the_wrap=False)
        self.scope.append("the state machine on the scripts as they are")
        if any(not bound.is_atomic for bound in self.new.operations.values()):
            self.gaps.append("operations of several calls were compared without others between their calls")

    def _difference(self, found: Finding, on_small: Reruns, on_large: Reruns) -> Difference:
        self.progress(f"both: a witness of {found.law}")
        is_small = found.trace.modulus != self.new.modulus
        trace = minimise(found.trace, found.law, on_small if is_small else on_large, wording=found.kind.wording)
        lines: tuple[RewrittenLine, ...] = ()
        if is_small:
            full = as_it_stands(trace, found.law, self.new.modulus, on_large)
            if full is None:
                lines = tuple(self.small.rewritten)
            else:
                trace = minimise(full, found.law, on_large)
        shown = (on_small if lines else on_large).law_broken(trace, found.law)
        trace = replace(trace, law="", store=str(self.new.path), seed=self.seed)
        new, old = (self._plain(binding, trace.modulus) for binding in (self.new, self.old))
        return Difference(
            found.law, shown[1] if shown else found.text, trace, explain(new, trace), explain(old, trace),
            laws_at_the_end(new, trace), laws_at_the_end(old, trace), lines,
        )  # fmt: skip

    def _plain(self, binding: Binding, modulus: int) -> Reruns:
        subject = Subject(binding, self.seed)
        return Reruns(subject if modulus == binding.modulus else subject.scaled(modulus, remembers=False))

    def take_long_run(self) -> None:
        """Thousands of messages on both, compared by their replies; what differs there is a gap, for it has no short witness."""
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
            self.scope.append(f"a run of {length} operations on queues of thousands of messages, identifiers going round")


def _operation(text: str) -> str:
    return " ".join(text.split(" ", 2)[:2]) if text.startswith("afterwards") else text.split(" ", 1)[0]


def laws_at_the_end(reruns: Reruns, trace: Trace) -> tuple[str, ...]:
    """The laws that the last step of a trace breaks."""
    run, taken = reruns.start(trace)
    laws: tuple[str, ...] = ()
    for step in trace.steps[taken:]:
        report = run.perform(step)
        laws = tuple(dict.fromkeys(one.law for one in report.discrepancies if one.law in STORE_LAWS))
        if report.diverges:
            break
    return laws


def cost_changes(before: SessionValidation, after: SessionValidation) -> Iterator[str]:
    """Where the new scripts take more or fewer commands, or more or less of a server's time, than the old ones."""
    old, new = before.footprint.costs, after.footprint.costs
    for situation in sorted(set(old) & set(new)):
        for length in sorted(set(old[situation]) & set(new[situation])):
            (calls_before, ms_before), (calls, ms) = old[situation][length], new[situation][length]
            apart = [abs(now - then) > CHEAPER * max(then, 1e-9) for now, then in ((calls, calls_before), (ms, ms_before))]
            if any(apart):
                word = "dearer" if (ms, calls) > (ms_before, calls_before) else "cheaper"
                yield (
                    f"{word}: {situation}, queue of {length:,}: {calls:,} commands and {ms:.2f} ms, "
                    f"before {calls_before:,} and {ms_before:.2f} ms"
                )

