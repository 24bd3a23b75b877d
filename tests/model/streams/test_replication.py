"""Replication keeps what was read and acknowledged over stale leaders; each shortcut breaks the law it should, by a
witness of pinned length."""

from __future__ import annotations

from typing import Any

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.spec.transition_system import Invariant
from orderlab.model.streams.replication import Replication
from orderlab.model.verdict import Outcome


@pytest.mark.parametrize("size", [{"messages": 1}, pytest.param({}, marks=pytest.mark.exhaustive)], ids=str)
def test_the_repaired_protocol_keeps_every_law(size: dict[str, Any]) -> None:
    found = explore(Replication.model_validate(size))
    assert found.complete
    assert [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS] == []


@pytest.mark.parametrize(
    ("protocol", "law", "steps"),
    [
        ("read-uncommitted", "remains", 3),  # D12
        ("acknowledge-early", "at-least-once", 3),
        ("any-successor", "remains", 4),
        ("no-terms", "remains", 4),
    ],
)
def test_a_shortcut_breaks_its_law(protocol: str, law: str, steps: int) -> None:
    found = explore(
        Replication.model_validate({"protocol": protocol, "messages": 1}), Options(keep_going=True, laws=(law,))
    )
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == steps


def test_readers_of_what_is_not_committed_disagree() -> None:
    """D12 as readers meet it: each has seen another message at one place; its neighbour is the repaired protocol
    above."""
    found = explore(
        Replication.model_validate({"protocol": "read-uncommitted", "messages": 2}), Options(laws=("agreement",))
    )
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == "agreement")
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == 5


STEPS = [
    "append(n=0, m=0, i=0)", "take_over(n=1, o=2)", "append(n=1, m=1, i=0)", "hear(n=0, o=1)", "take_over(n=0, o=2)",
    "copy_entry(n=2, o=0, i=0)", "read(r=0, n=0, i=0)", "hear(n=1, o=0)", "take_over(n=1, o=2)",
]  # fmt: skip
"""A leader copies its old entry to a second node in a later term; one with a newer entry takes over and has the older
one forgotten."""
NEEDS_OLDER_TERMS = 6


def test_an_older_term_is_not_committed_by_two_copies() -> None:
    """The witness is pinned by its steps, as the search for it takes a minute (below); repaired, the entry cannot be
    read when it has two copies."""
    size = {"messages": 2, "terms": 3}
    flawed, repaired = (
        Replication.model_validate({"protocol": protocol, **size}) for protocol in ("older-terms", "repaired")
    )
    (state,) = flawed.initial_states()
    remains = next(law for law in flawed.laws() if law.name == "remains")
    assert isinstance(remains, Invariant)
    for number, step in enumerate(STEPS):
        assert remains.holds(state)
        if number == NEEDS_OLDER_TERMS:
            assert step not in {str(label) for label, _ in repaired.successors(state)}
        (state,) = [after for label, after in flawed.successors(state) if str(label) == step]
    assert not remains.holds(state)


@pytest.mark.exhaustive
def test_and_no_shorter_witness_is_there() -> None:
    found = explore(
        Replication.model_validate({"protocol": "older-terms", "messages": 2, "terms": 3}),
        Options(keep_going=False, laws=("remains",)),
    )
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == "remains")
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == len(STEPS)
