"""A session in which a step is never offered, or one too many, is noticed; one that offers them in another order is
not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from orderlab.model.contracts.session.spec import AGAIN, LATE, SessionSystem, Situation
from orderlab.model.explorer.exploration import explore
from orderlab.model.spec.transition_system import Label
from orderlab.model.verdict import Outcome

Steps = list[tuple[Label, Situation]]


def changed(change: Callable[[Situation, Steps], Iterable[tuple[Label, Situation]]]) -> set[str]:
    """The laws that a session breaks whose offers are changed."""

    class Changed(SessionSystem):
        def successors(self, state: Situation) -> Iterable[tuple[Label, Situation]]:
            return change(state, list(super().successors(state)))

    return {one.law for one in explore(Changed()).verdicts if one.outcome is Outcome.VIOLATED}


@pytest.mark.parametrize("action", ["acknowledge", "release", "fetch", "save", "clear", "expire", AGAIN, LATE])
def test_an_action_that_is_never_offered_is_missed(action: str) -> None:
    assert "drain" in changed(lambda state, steps: [one for one in steps if one[0].action != action])


def test_a_record_that_is_late_before_anything_was_cleared_is_one_step_too_many() -> None:
    early = Label("writer 1", LATE), Label("writer 2", LATE)
    assert "drain" in changed(
        lambda state, steps: steps if state.session.epoch else [*steps, *((label, state) for label in early)]
    )


def test_offers_may_come_in_any_order() -> None:
    assert changed(lambda state, steps: reversed(steps)) == set()


def test_batches_numbered_two_apart_are_noticed() -> None:
    def twice(state: Situation, steps: Steps) -> Steps:
        def doubled(after: Situation) -> Situation:
            marks = tuple((writer, 2 * mark) for writer, mark in after.session.marks)
            return after._replace(session=after.session._replace(marks=marks))

        return [(label, doubled(after) if label.action == "save" else after) for label, after in steps]

    assert "all-or-nothing, marks" in changed(twice)
