"""The repaired hand-over keeps every law in its scope; each published or nearby way breaks the one it should, by a
witness of pinned length."""

from __future__ import annotations

from typing import Any

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.streams.handover import Handover
from orderlab.model.verdict import Outcome


@pytest.mark.parametrize(
    "size",
    [
        {"messages": 2, "publishers": 1, "topic_count": 1},
        {"messages": 2, "topic_count": 1},
        pytest.param({"messages": 3, "topic_count": 1}, marks=pytest.mark.exhaustive),
        pytest.param({"messages": 2}, marks=pytest.mark.exhaustive),
        pytest.param({"messages": 3}, marks=pytest.mark.exhaustive),
    ],
    ids=str,
)
def test_the_repaired_hand_over_keeps_every_law(size: dict[str, Any]) -> None:
    found = explore(Handover.model_validate(size))
    assert found.complete
    assert [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS] == []


FLAWED = [
    ("as-published", {}, "no-repeat", 7),
    ("no-second-look", {"messages": 1, "topic_count": 1}, "agreement(m=0)", 4),
    ("buffer-first", {"publishers": 1}, "fifo", 7),
    ("drop-behind-cursor", {}, "cursor-safe", 7),
    ("commit-first", {"crashes": True}, "cursor-safe", 3),
]


@pytest.mark.parametrize(("protocol", "size", "law", "steps"), FLAWED)
def test_a_flawed_hand_over_breaks_its_law(protocol: str, size: dict[str, Any], law: str, steps: int) -> None:
    found = explore(
        Handover.model_validate({"protocol": protocol, "messages": 2, "crashes": False, "topic_count": 1} | size),
        Options(keep_going=True),
    )
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == steps
