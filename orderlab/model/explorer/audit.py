"""Audit: what a system claims of itself is checked on a sample of its states before any verdict is told.

The search believes that steps and laws depend on the state alone, that members of a symmetric set are interchangeable,
and that footprints and `reads` name every place that was looked at. Where one of these is not so, a search can miss a
violation, so the claim is an error of the author's, told with the state that shows it. The first and the last states
(rare steps are taken late), some drawn by the seed, and the states of some random walks are looked at: a claim that is
wrong in few states only may pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from random import Random
from typing import Any

from orderlab.model.errors import InputError
from orderlab.model.explorer.witness import steps_of
from orderlab.model.spec.transition_system import (
    Constraint,
    Invariant,
    Label,
    Law,
    LeadsTo,
    Sometimes,
    StepInvariant,
    TransitionSystem,
)
from orderlab.model.spec.variables import shown

FIRST = 64
DRAWN = 192
"""States asked twice in every search; more often where they are few."""
ASKED = 1024
TIMES_AT_MOST = 32
CLAIMED_FIRST = 250
CLAIMED_DRAWN = 500
"""States on which symmetry and footprints are checked."""
WALKS = 16
WALK_STEPS = 48


class Audit:
    """One system with the laws and constraints that the search looks at."""

    def __init__(
        self, system: TransitionSystem[Any], laws: Sequence[Law], constraints: Sequence[Constraint[Any]], seed: int
    ):
        self.system = system
        self.constraints = constraints
        self._random = Random(f"audit {seed}")
        self._decided: frozenset[str] = frozenset()
        self._is_known: Callable[[Any], bool] = lambda state: True
        self._step_laws = [law for law in laws if isinstance(law, StepInvariant)]
        self._lookers = [law for law in laws if isinstance(law, Invariant | Sometimes)]
        self._obligations = [law for law in laws if isinstance(law, LeadsTo)]

    def check(
        self,
        count: int,
        state: Callable[[int], Any],
        cut: set[int],
        symmetry: bool = False,
        reduction: bool = False,
        decided: Collection[str] = (),
        is_known: Callable[[Any], bool] = lambda state: True,
        compiled: bool = False,
    ) -> None:
        """Raises InputError for a claim that a sample of the states 0..count-1 refutes.

        `decided` names the invariants that a whole search has found true in all of these states, and the goals that it
        has found in none; `is_known` tells the states that it came to. What was `compiled` can look at the state alone,
        and the interpreter was held against it while it ran (`compiled.space`): its states are asked once.
        """
        self._decided, self._is_known = frozenset(decided), is_known
        sampled = list(self._sample(count, state, cut, FIRST, DRAWN))
        times = 1 if compiled else min(TIMES_AT_MOST, max(1, ASKED // max(1, len(sampled))))
        for _ in range(times):
            for one in sampled:
                self._check_asked_again(one, twice=not compiled)
        if not (symmetry or reduction):
            return
        claimed = dict.fromkeys(self._sample(count, state, cut, CLAIMED_FIRST, CLAIMED_DRAWN))
        claimed |= dict.fromkeys(self._walked())
        if symmetry:
            self._check_initial_states()
        for one in claimed:
            if symmetry:
                self._check_symmetry(one)
            if reduction:
                self._check_footprints(one)

    def _sample(self, count: int, state: Callable[[int], Any], cut: set[int], first: int, drawn: int) -> Iterator[Any]:
        numbers: Sequence[int] = range(count)
        if count > 2 * first + drawn:
            between = self._random.sample(range(first, count - first), drawn)
            numbers = [*range(first), *sorted(between), *range(count - first, count)]
        return (state(number) for number in numbers if number not in cut)

    def _walked(self) -> Iterator[Any]:
        starts = list(self.system.initial_states())
        for _ in range(WALKS if starts else 0):
            state = self._random.choice(starts)
            for _ in range(WALK_STEPS):
                if not all(one.holds(state) for one in self.constraints):
                    break
                yield state
                steps = list(self.system.successors(state))
                if not steps:
                    break
                state = self._random.choice(steps)[1]

    def _truths(self, state: Any) -> dict[str, Any]:
        """What laws and constraints say of a state, by name."""
        found: dict[str, Any] = {one.name: bool(one.holds(state)) for one in self.constraints}
        for law in self._lookers:
            found[law.name] = self._truth(law, state)
        found["terminal"] = bool(self.system.is_terminal(state))
        return found

    @staticmethod
    def _truth(law: Invariant[Any] | Sometimes[Any], state: Any) -> tuple[bool, ...]:
        if isinstance(law, Sometimes):
            return (bool(law.reached(state)),)
        met = law.antecedent is None or bool(law.antecedent(state))
        return met, not met or bool(law.holds(state))

    # -- the same twice ------------------------------------------------------------------------------------------------

    def _check_asked_again(self, state: Any, twice: bool) -> None:
        """Hold what the state says against what the search found, and with `twice` against what it says right after."""
        one = steps_of(self.system, state)
        if twice and one != (other := steps_of(self.system, state)):
            odd = next((pair for pair in [*one, *other] if pair not in one or pair not in other), (one + other)[0])
            raise self._not_the_same(f"action {Label(*odd[0])}", state)
        for label, after in one:
            if not self._is_known(after):
                raise self._not_the_same(f"action {Label(*label)}", state)
        truths = self._truths(state)
        for name in self._decided & truths.keys():
            if truths[name] in ((True,), (True, False)):
                raise self._not_the_same(name, state)
        if not twice:
            return
        again = self._truths(state)
        for name, truth in truths.items():
            if again[name] != truth:
                raise self._not_the_same(name, state)
        for law in self._obligations:
            for predicate in filter(None, (law.when, law.then)):
                if bool(predicate(state)) != bool(predicate(state)):
                    raise self._not_the_same(law.name, state)

    def _not_the_same(self, what: str, state: Any) -> InputError:
        return InputError(
            f"{self.system.name}: {what} does not do the same twice in the state {self._shown(state)}: it draws random"
            " numbers, reads the clock, or keeps something between calls; let it depend on the state alone"
        )

    # -- symmetry ------------------------------------------------------------------------------------------------------

    def _check_initial_states(self) -> None:
        starts = set(self.system.initial_states())
        for state in list(starts)[: CLAIMED_FIRST + CLAIMED_DRAWN]:
            for exchanged, image in self.system.exchanges(state):
                if image not in starts:
                    raise self._no_symmetry(exchanged, "the initial states", state)

    def _check_symmetry(self, state: Any) -> None:
        truths, steps = self._truths(state), list(self.system.successors(state))
        # By position: two sets may have one name.
        after = [[image for _, image in self.system.exchanges(target)] for _, target in steps]
        broken = self._broken_steps(state, steps)
        for number, (exchanged, image) in enumerate(self.system.exchanges(state)):
            for name, truth in self._truths(image).items():
                if truths[name] != truth:
                    raise self._no_symmetry(exchanged, name, state)
            expected = Counter((label.action, images[number]) for (label, _), images in zip(steps, after, strict=True))
            offered = list(self.system.successors(image))
            found = Counter((label.action, target) for label, target in offered)
            if found != expected:
                odd = next(iter((expected - found) + (found - expected)))
                raise self._no_symmetry(exchanged, f"action {odd[0]}", state)
            for name, times in self._broken_steps(image, offered).items():
                if broken[name] != times:
                    raise self._no_symmetry(exchanged, name, state)

    def _broken_steps(self, state: Any, steps: Sequence[tuple[Label, Any]]) -> dict[str, int]:
        return {law.name: sum(not law.holds(state, *step) for step in steps) for law in self._step_laws}

    def _no_symmetry(self, exchanged: Hashable, what: str, state: Any) -> InputError:
        return InputError(
            f"{self.system.name}: --symmetry: {what} tells {exchanged} apart, in the state {self._shown(state)}: "
            "the set is"
            " not symmetric; leave out symmetric=True (or --symmetry), or use equality and quantification only"
        )

    # -- footprints ----------------------------------------------------------------------------------------------------

    def _check_footprints(self, state: Any) -> None:
        steps, waiting = self.system.expansion(state)
        if [(label[:3], after) for label, after in steps] != steps_of(self.system, state):
            raise self._untrue("expansion", "gives other steps than successors does", state)
        for label, after in steps:
            assert label.footprint is not None
            writes = label.footprint.writes
            for law in self._lookers:
                if law.reads is None or not writes.isdisjoint(law.reads(state)):
                    continue
                if self._truth(law, state) != self._truth(law, after):
                    raise self._untrue(
                        law.name, f"changed with {label}, which writes nothing that its `reads` names", state
                    )
            looked_at: dict[str, set[Hashable]] = {actor: set(places) for actor, places in waiting.items()}
            for other, _ in steps:
                assert other.footprint is not None
                looked_at.setdefault(other.actor, set()).update(other.footprint.reads)
            later, _ = self.system.expansion(after)
            for actor, places in looked_at.items():
                if actor == label.actor or not writes.isdisjoint(places):
                    continue
                before_it = Counter(one[:3] for one, _ in steps if one.actor == actor)
                after_it = Counter(one[:3] for one, _ in later if one.actor == actor)
                if before_it != after_it:
                    odd = next(iter((before_it - after_it) + (after_it - before_it)))
                    raise self._untrue(
                        f"action {Label(*odd)}",
                        f"depends on what {label} changes, and its footprint does not tell",
                        state,
                    )

    def _untrue(self, what: str, wrong: str, state: Any) -> InputError:
        return InputError(
            f"{self.system.name}: --reduction: {what} {wrong}, in the state {self._shown(state)};"
            " name every place that is read or written, or leave out --reduction"
        )

    def _shown(self, state: Any) -> str:
        return ", ".join(f"{name} = {shown(value)}" for name, value in self.system.describe(state).items())
