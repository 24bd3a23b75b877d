"""Two versions of a store's scripts, whatever its contract: each validated, both together, both on the same data.

A contract brings how it validates a store, and a ``VersionSearch``; in which order things are done, what counts as
newly broken, and what is told of each kind of difference is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Protocol

from orderlab.model.contracts.base import Terms
from orderlab.platform import rare_collections
from orderlab.properties.comparison.differences import (
    DIFFERENCES_MAX,
    KINDS,
    NEW_BY,
    OLD_BY,
    Cap,
    Change,
    Comparison,
    Difference,
    RollingUpgrade,
    broken_in,
    has_same_code,
    has_same_text,
    in_common,
    no_longer_known,
    sorted_by,
)
from orderlab.properties.validation.findings import Finding, Findings
from orderlab.properties.validation.validation import Validation
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.shortening import Broken, Reruns
from orderlab.properties.witness.witness import Explanation, Witness
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine

CHEAPER = 0.05
"""By which part the commands or the time of an operation must differ to be told."""


class Version(Reruns, Protocol):
    """One version by itself."""

    def breaks_any(self, trace: Any) -> bool:
        """Whether the steps break any law."""
        ...

    def laws_at_the_end(self, trace: Any) -> tuple[str, ...]:
        """The laws that the last step breaks."""
        ...


class InTheMix:
    """Before the reruns of a store that either version serves: broken there is what falls by steps with which neither
    version breaks any law alone. Those steps break a law alone as well, and then that is what is wrong, whoever
    serves."""

    alone: tuple[Version, ...]

    def by_one(self, trace: Any) -> Any:
        """The steps as one version alone takes them."""
        raise NotImplementedError

    def law_broken(self, trace: Any, law: str, words: str = "") -> Broken | None:
        """As of any store, unless one version alone breaks a law by the same steps."""
        broken: Broken | None = super().law_broken(trace, law, words)  # type: ignore[misc]
        if broken is None:
            return None
        plain = self.by_one(replace(trace, steps=trace.steps[: broken[0]]))
        return None if any(one.breaks_any(plain) for one in self.alone) else broken


class VersionSearch(Protocol):
    """What a contract brings: searches with both versions, as far as a cap goes."""

    scope: list[str]
    gaps: list[str]

    @property
    def work(self) -> Mapping[str, float]:
        """What the search of both took, where that is told."""
        ...

    @property
    def alone(self) -> Sequence[Reruns]:
        """Each version by itself, the old one first."""
        ...

    def differences(self, newly: Sequence[Change]) -> tuple[Difference, ...]:
        """What the two do otherwise on data of their own; ``newly``: laws that are told anyway."""
        ...

    def costs(self, before: Validation, after: Validation) -> Iterable[str]:
        """What takes more or less than before, in words."""
        ...

    def rolling_upgrade(self, laws: Sequence[str], seen: Set[tuple[str, str]]) -> RollingUpgrade:
        """Which of ``laws`` the two break together. ``seen``: law and wording of what one was seen to break alone."""
        ...


@rare_collections()
def compare_versions(
    old: Binding,
    new: Binding,
    order: WorkOrder,
    judged: Callable[[Binding, WorkOrder], Validation],
    laws_of: Callable[[Binding], Collection[str]],
    is_counted: Callable[[Finding], bool],
    search_of: Callable[[Binding, Binding, Cap], VersionSearch],
) -> Comparison:
    """Judge the change from ``old`` to ``new``, the old one by those of the laws that it is held to as well.

    Raises InputError where the two cannot be held against each other.
    """

    def validated(name: str, binding: Binding, until: float) -> Validation:
        wanted = order.laws
        if binding is old and wanted is not None:
            wanted = [law for law in wanted if law in laws_of(old)]
        return judged(binding, order.part(name, wanted, cap.left_s(until)))

    old_common, new_common, not_in_both = in_common(old, new)
    cap, is_same_text = Cap(order.budget_s), has_same_text(old, new)
    is_same_code = not is_same_text and has_same_code(old, new)
    is_same = is_same_text or is_same_code
    after = validated("new", new, 1.0 if is_same else NEW_BY)
    if is_same:
        same, is_cut = tuple(broken_in(after)), after.is_cut
        return Comparison(
            old, new, is_same_text, None, after, (), (), same, gaps=after.gaps, is_same_code=is_same_code, is_cut=is_cut
        )
    before = validated("old", old, OLD_BY)
    search = search_of(old_common, new_common, cap)
    newly, still = sorted_by(after, search.alone[1], search.alone[0], before, is_counted)
    fixed, also_still = sorted_by(before, search.alone[0], search.alone[1], after, is_counted)
    named = {one.law for one in still}
    still += [one for one in also_still if one.law not in named]
    differences = search.differences(newly)
    known = {one.law for one in newly}
    rolling = search.rolling_upgrade(
        [one.law for one in after.results if one.law not in known], before.seen | after.seen
    )
    return Comparison(
        old,
        new,
        False,
        before,
        after,
        tuple(newly),
        tuple(fixed),
        tuple(still),
        no_longer_known(before, after),
        differences,
        tuple(search.costs(before, after)),
        tuple(search.scope),
        (*after.gaps, *search.gaps, *cap.cuts),
        dict(search.work),
        rolling,
        not_in_both,
        is_cut=after.is_cut or before.is_cut or bool(cap.cuts),
    )


def first_of_each(
    findings: Findings,
    order: Callable[[Finding], Any],
    operation: Callable[[Finding], str],
    told: Callable[[Finding], Difference],
) -> tuple[Difference, ...]:
    """The shortest difference for each kind and operation; what takes no trouble is told first."""
    found: dict[tuple[str, str], Difference] = {}
    for kind in KINDS:
        for one in sorted(findings.by_law.get(kind, ()), key=order):
            head = kind, operation(one)
            if head not in found and sum(known[0] == kind for known in found) < DIFFERENCES_MAX:
                found[head] = told(one)
    return tuple(found.values())


def difference_of(
    kind: str,
    text: str,
    trace: Any,
    versions: tuple[Version, Version],
    told_step: Callable[[Any], str],
    explain: Callable[[Any, Any], Explanation],
    lines: tuple[RewrittenLine, ...] = (),
) -> Difference:
    """With what either version, the new one first, does in the steps."""
    new, old = versions
    return Difference(
        kind,
        text,
        trace,
        tuple(map(told_step, trace.steps)),
        explain(new, trace),
        explain(old, trace),
        new.laws_at_the_end(trace),
        old.laws_at_the_end(trace),
        lines,
    )


ONE_LIBRARY = "a node has one version of a library at a time"
"""Why two versions do not meet on the same data."""


def not_searched(reason: str) -> RollingUpgrade:
    """Where the two do not meet on the same data."""
    return RollingUpgrade(gaps=(f"a rolling upgrade was not searched: {reason}",))


def change_of(
    found: Finding,
    trace: Any,
    mixed: Binding,
    reruns: Reruns,
    explained: Callable[[Any], Explanation],
    confirmed: Callable[[Any, Explanation], str],
    order: WorkOrder,
    terms: Terms,
    is_certain: bool = True,
) -> Change:
    """A finding of the mix as its shortest ``trace`` shows it."""
    shown = reruns.law_broken(trace, found.law)
    trace = replace(trace, law=found.law, store=str(mixed.path), seed=order.seed)
    finding = replace(found, trace=trace, text=shown[1] if shown else found.text)
    explanation = explained(trace)
    return Change(found.law, Witness(finding, explanation, confirmed(trace, explanation), terms), is_certain)


def in_the_mix(
    laws: Sequence[str],
    findings: Findings,
    order: Callable[[Finding], Any],
    tried_max: int,
    change_of: Callable[[Finding], Change | None],
) -> tuple[Change, ...]:
    """Of each law the first that stands among so many."""
    tried = (map(change_of, sorted(findings.by_law.get(law, ()), key=order)[:tried_max]) for law in laws)
    first = (next(filter(None, some), None) for some in tried)
    return tuple(filter(None, first))


def dearer_or_cheaper(then: tuple[float, float], now: tuple[float, float]) -> str:
    """Of the time and the commands that something takes: which of the two it is now, nothing where they hardly
    differ."""
    if not any(abs(after - before) > CHEAPER * max(before, 1e-9) for before, after in zip(then, now, strict=True)):
        return ""
    return "dearer" if now > then else "cheaper"
