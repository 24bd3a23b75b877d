"""Replication keeps what was read and acknowledged over stale leaders; each shortcut breaks the law it should, by a witness of pinned length."""

from __future__ import annotations

from typing import Any

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
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
    found = explore(Replication.model_validate({"protocol": protocol, "messages": 1}), Options(keep_going=True, laws=(law,)))
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == steps
