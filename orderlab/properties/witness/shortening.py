"""Making a witness short: steps are left out, then what is left is made plainer, as long as the same law is broken.

What there is to leave out is the same for every kind of store; what a plainer step is, the kind says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from orderlab.model.contracts.base import AnyTrace
from orderlab.properties.validation.effort import SHORTENING_STEPS

T = TypeVar("T", bound=AnyTrace)
Broken = tuple[int, str]
"""How many steps it takes to break a law, and what is then said."""


class Reruns(Protocol):
    """Runs traces of one store again and again."""

    spent: int
    """Work so far, in steps: the same on every machine."""

    def law_broken(self, trace: Any, law: str, words: str = "") -> Broken | None:
        """How ``trace`` breaks ``law``, in this wording if one is given (``findings.wording``); None when it does
        not."""
        ...

    def takes(self, trace: Any) -> bool:
        """Whether clients could take all the steps here: they make no call with what they were never told."""
        ...

    def hands_back(self, trace: Any) -> frozenset[int]:
        """The steps whose replies the last call hands back here, from 0."""
        ...


class Plainer(Protocol[T]):
    """What is plainer than a trace of one kind, the plainest first."""

    def at_first(self, trace: T) -> Iterator[T]:
        """What is tried once, before steps are left out one by one."""
        ...

    def whole(self, trace: T) -> Iterator[T]:
        """Several steps changed together: the first that will do is taken."""
        ...

    def at(self, trace: T, index: int) -> Iterator[T]:
        """One step plainer."""
        ...

    def in_the_end(self, trace: T) -> Iterator[T]:
        """The same with plainer names, each made of the one before: until one will not do."""
        ...


class Shortening(Generic[T]):
    """One witness on its way to the shortest: ``law`` must stay broken, if so many ``steps`` of reruns suffice.

    With a ``wording`` only what breaks the law in these words counts, so that one defect does not turn into another.
    """

    def __init__(self, law: str, reruns: Reruns, plainer: Plainer[T], steps: int, wording: str) -> None:
        self.law, self.reruns, self.plainer, self.wording = law, reruns, plainer, wording
        self.until = reruns.spent + steps

    @property
    def is_over(self) -> bool:
        return self.reruns.spent >= self.until

    def cut(self, trace: T) -> T | None:
        """The trace up to the step that breaks the law, or None."""
        broken = self.reruns.law_broken(trace, self.law, self.wording)
        return None if broken is None else _with_steps(trace, trace.steps[: broken[0]])

    def shortest(self, trace: T) -> T:
        """From which no single step can be left out."""
        best = self.cut(trace) or trace
        for candidate in self.plainer.at_first(best):
            best = self.cut(candidate) or best
        improved = True
        while improved and not self.is_over:
            before = best
            best = self._with_plainer_steps(self._fewer(best))
            improved = best != before
        for named in self.plainer.in_the_end(best):
            found = self.cut(named)
            if found is None:
                break
            best = found
        return best

    def _fewer(self, best: T) -> T:
        """Leave out runs of steps, half of them at first and single ones in the end (delta debugging)."""
        size = max(len(best.steps) // 2, 1)
        while size >= 1:
            start = 0
            while start < len(best.steps) and not self.is_over:
                shorter = self.cut(_with_steps(best, (*best.steps[:start], *best.steps[start + size :])))
                if shorter is None:
                    start += size
                else:
                    best = shorter
            size //= 2
        return best

    def _with_plainer_steps(self, best: T) -> T:
        """Several steps together, then each as far as it goes."""
        best = next((found for candidate in self.plainer.whole(best) if (found := self.cut(candidate))), best)
        index = 0
        while index < len(best.steps) and not self.is_over:
            for candidate in self.plainer.at(best, index):
                if self.is_over:
                    return best
                found = self.cut(candidate)
                if found is not None:
                    best = found
                    break
            else:
                index += 1
        return best


def shortened(
    trace: T, law: str, reruns: Reruns, plainer: Plainer[T], steps: int = SHORTENING_STEPS, wording: str = ""
) -> T:
    """A trace that breaks the same law with fewer and plainer steps (``Shortening``)."""
    return Shortening(law, reruns, plainer, steps, wording).shortest(trace)


def _with_steps(trace: T, steps: Any) -> T:
    return replace(trace, steps=tuple(steps))  # type: ignore[type-var]
