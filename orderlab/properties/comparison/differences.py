"""What a change of scripts does, whatever the kind of store: laws newly broken and fixed, what differs, what the mix
breaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import lupa

from orderlab.child import asked_to_end
from orderlab.model.contracts.base import AnyTrace
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.harness.keyspace import shown_value
from orderlab.properties.validation.findings import Finding, kind_of, wording
from orderlab.properties.validation.isolated import Runaway, isolated
from orderlab.properties.validation.validation import Validation
from orderlab.properties.witness.shortening import Reruns
from orderlab.properties.witness.witness import Explanation, Witness
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.lua.sandbox import code_of
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine
from orderlab.sim.stores.bound import BudgetExceeded, CpuBudget

REPLY, KEYS, VALUES, TTLS = "reply", "keys", "values", "ttl"
KINDS = (REPLY, KEYS, VALUES, TTLS)
"""In what two stores can differ after a step, the plainest to a client first."""
SHOWN_MAX = 120
"""Characters of one reply, or of one value."""
DIFFERENCES_MAX = 5
"""Told of each kind: one for each operation."""

NEW_BY, OLD_BY, PRODUCT_BY, ROLLING_BY = 0.35, 0.6, 0.8, 0.95
"""Of a cap in seconds, when each part has to be done: validating the new store and the old one, the product of both,
both on the same data; the rest is for witnesses."""


class Cap:
    """A cap in seconds on all of a comparison, if there is one; what it cuts off, as an interruption does, is told."""

    def __init__(self, budget_s: float | None) -> None:
        self.budget_s, self._began = budget_s, time.monotonic()
        self.cuts: list[str] = []

    def left_s(self, until: float) -> float | None:
        """What is left of that share; None without a cap."""
        return None if self.budget_s is None else max(until * self.budget_s + self._began - time.monotonic(), 0.1)

    def limit(self, budget: CpuBudget, until: float) -> CpuBudget:
        """Have the stores of a search give up then, or when they are interrupted."""
        budget.is_interruptible = True
        left_s = self.left_s(until)
        if left_s is not None:
            budget.set(left_s, time.monotonic)
        return budget

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        """Do a part, as far as the time goes."""
        try:
            yield
        except BudgetExceeded:
            why = "an interruption" if asked_to_end else "the cap" if self.budget_s is not None else "too slow a script"
            self.cuts.append(f"{why} cut off the comparison in: {what}; what comes after was not done")


@dataclass(frozen=True)
class Difference:
    """A call that the two scripts do otherwise, with the shortest steps that lead there."""

    kind: str
    text: str
    trace: AnyTrace
    told_steps: tuple[str, ...]
    """The steps as sentences."""
    new: Explanation
    old: Explanation
    breaks: tuple[str, ...]
    """Laws that the new scripts break at the last step."""
    broke: tuple[str, ...]
    """The same of the old ones."""
    small_scope: tuple[RewrittenLine, ...] = ()
    """The rewritten lines, where it was seen in a smaller world only."""


@dataclass(frozen=True)
class Change:
    """A law that the change concerns, with a witness on the scripts that break it."""

    law: str
    witness: Witness | None
    """None where there is none to tell: a script that had to be ended with its process."""
    is_certain: bool = True
    """False: seen in a smaller world only."""


@dataclass(frozen=True)
class RollingUpgrade:
    """Old and new scripts on the same data: laws that fall although neither version breaks them alone by the same
    steps."""

    broken: tuple[Change, ...] = ()
    scope: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What changed from the old scripts to the new ones."""

    old: Binding
    new: Binding
    is_same_text: bool
    before: Validation | None
    """Of the old scripts; None where the texts are the same."""
    after: Validation
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
    rolling: RollingUpgrade = field(default_factory=RollingUpgrade)
    not_in_both: tuple[str, ...] = ()
    """Operations that one of them lacks, and what becomes of them, in words."""
    is_same_code: bool = False
    """Compiled, the scripts are the same; comments, lines and names of locals are not."""
    is_cut: bool = False
    """A cap or an interruption ended it before its end."""

    @property
    def is_equivalent(self) -> bool:
        """Whether nothing differs in all that was compared; never of what was cut off."""
        return ((self.is_same_text or self.is_same_code) and not self.is_cut) or not (
            self.is_cut or self.differences or self.newly_broken or self.fixed or self.rolling.broken
        )

    def outcome(self, is_strict: bool = False) -> Outcome:
        """Violated if a law is newly broken, by the new scripts or in the mix; with ``is_strict`` also if one still
        is."""
        if self.newly_broken or self.rolling.broken or (is_strict and self.still_broken):
            return Outcome.VIOLATED
        return Outcome.UNKNOWN if self.no_longer_known or self.is_cut else Outcome.HOLDS


def compare_isolated(
    old: Binding, new: Binding, compare: Callable[[], Comparison], budget_s: float | None = None
) -> Comparison:
    """What ``compare`` comes to in a process of its own. Raises WorkerDied when that ended by itself, and InputError
    for a script that could only be ended together with it."""
    found = isolated(new, compare, lambda: [old, new], "the comparison", budget_s)
    if isinstance(found, Runaway):
        raise InputError(f"{new.place}: {found.text}; validate each of the two alone")
    return found


def broken_in(found: Validation) -> Iterator[Change]:
    """Every law that a validation saw broken, with each of its witnesses."""
    for result in found.results:
        if result.outcome is Outcome.VIOLATED:
            yield from (Change(result.law, one) for one in result.witnesses or (None,))


def sorted_by(
    found: Validation, own: Reruns, others: Reruns, other: Validation, is_counted: Callable[[Finding], bool]
) -> tuple[list[Change], list[Change]]:
    """What a validation saw broken: what the other scripts do not show, and what they do.

    A finding is the same where the same operation, in the same situation, breaks the same law. The situation are the
    steps of its witness, which are replayed. What is seen by counting is not shown by steps: there it decides whether
    the other validation saw the same, whatever the numbers; so it does where the other scripts tell their clients other
    tokens, so that these cannot take the steps, or take them with the token of another reply.
    """
    only: list[Change] = []
    both: list[Change] = []
    for one in broken_in(found):
        (both if _is_shown(one, own, others, other, is_counted) else only).append(one)
    return only, both


def _is_shown(
    one: Change, own: Reruns, others: Reruns, other: Validation, is_counted: Callable[[Finding], bool]
) -> bool:
    """Whether the other scripts break the law in the same way."""
    if one.witness is None or is_counted(one.witness.finding):
        return _has_seen(other, one)
    finding = one.witness.finding
    broken = others.law_broken(finding.trace, one.law)
    if broken is None:
        trace = finding.trace
        is_situation = others.takes(trace) and others.hands_back(trace) == own.hands_back(trace)
        return not is_situation and _has_seen(other, one)
    step = finding.trace.steps[broken[0] - 1]
    return broken[0] == len(finding.trace.steps) or kind_of(one.law, "", step).step == finding.kind.step


def _has_seen(other: Validation, change: Change) -> bool:
    """Whether a validation saw the law broken in the words of this change; one that was cut off may have come to it."""
    if other.is_cut:
        return True
    if change.witness is None:
        return other.outcomes.get(change.law) is Outcome.VIOLATED
    return (change.law, wording(change.witness.finding.text)) in other.seen


def no_longer_known(before: Validation, after: Validation) -> tuple[str, ...]:
    """Laws that held before and are undecided now."""
    outcomes = before.outcomes
    return tuple(
        one.law
        for one in after.results
        if one.outcome is Outcome.UNKNOWN and outcomes.get(one.law) is Outcome.HOLDS and not one.not_applicable
    )


def short(text: str) -> str:
    """Its beginning, where it is long."""
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def first_difference(new: FrozenKeyspace, old: FrozenKeyspace) -> tuple[str, str] | None:
    """The kind and the words of what two keyspaces do not hold alike."""
    if new == old:
        return None
    for kind, key, ours, theirs in _differences(new, old):
        name = key.decode("latin-1")
        if kind == KEYS:
            return kind, f"no {name}; the old one does" if ours == "not" else f"{name}; the old one does not"
        return kind, f"{name} {ours}; the old one {theirs}"
    return None  # the order in which keys were made


def _differences(new: FrozenKeyspace, old: FrozenKeyspace) -> Iterator[tuple[str, bytes, str, str]]:
    for key in sorted({*new, *old}):
        if key not in new or key not in old:
            yield KEYS, key, *(("there", "not") if key in new else ("not", "there"))
    for key in sorted(new):
        if new[key][:2] != old[key][:2]:
            yield VALUES, key, f"as {short(shown_value(*new[key][:2]))}", f"as {short(shown_value(*old[key][:2]))}"
    for key in sorted(new):
        if new[key][2] != old[key][2]:
            yield TTLS, key, f"until {_deadline(new[key][2])}", _deadline(old[key][2])


def _deadline(deadline_ms: int | None) -> str:
    """In ms after the first moment of a run."""
    return "for ever" if deadline_ms is None else f"{deadline_ms - FIRST_MS:,} ms"


def in_common(old: Binding, new: Binding) -> tuple[Binding, Binding, tuple[str, ...]]:
    """Each with the operations that both have, and what becomes of the others, in words. Raises InputError unless they
    have some operation in common."""
    both, ours, theirs = (sorted(names) for names in _split(set(new.operations), set(old.operations)))
    if not both:
        raise InputError(
            f"{new.place}: --base: the old store has no operation that the new one has; compare stores that share some"
        )
    if not ours and not theirs:
        return old, new, ()
    told = [f"only the new one has {', '.join(ours)}: judged there, and held against nothing"] if ours else []
    told += (
        [f"only the old one has {', '.join(theirs)}: what clients get that still ask for it was not looked at"]
        if theirs
        else []
    )
    return old.with_operations(both), new.with_operations(both), tuple(told)


def _split(ours: set[str], theirs: set[str]) -> tuple[set[str], set[str], set[str]]:
    return ours & theirs, ours - theirs, theirs - ours


def has_same_text(old: Binding, new: Binding) -> bool:
    """Whether scripts, binding, adapter and contract are the same, but for where they lie."""
    return _texts(old) == _texts(new)


def has_same_code(old: Binding, new: Binding) -> bool:
    """Whether all that may differ are comments, lines and names of locals, which only errors tell."""
    return _texts(old, _code_of) == _texts(new, _code_of)


def _code_of(source: bytes) -> bytes:
    head, _, rest = source.partition(b"\n")
    is_marked = head.startswith(b"#!")
    with suppress(lupa.LuaError):
        return (head if is_marked else b"") + code_of(rest if is_marked else source)
    return source


def _texts(binding: Binding, part: Callable[[bytes], bytes] = bytes) -> tuple[object, ...]:
    folder = binding.path if binding.path.is_dir() else binding.path.parent
    file = folder / "store.toml" if binding.path.is_dir() else binding.path
    python = sorted((one.name, one.read_bytes()) for one in folder.glob("*.py"))
    return sorted((one.path.name, part(one.source)) for one in binding.scripts), file.read_bytes(), python


def has_library(binding: Binding) -> bool:
    """Whether any of its scripts is a library, of which a node has one version at a time, for all who call it."""
    return any(one.source.startswith(b"#!") and b"name=" in one.source.split(b"\n", 1)[0] for one in binding.scripts)
