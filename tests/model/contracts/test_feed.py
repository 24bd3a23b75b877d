"""The abstract feed keeps its laws, and each flaw breaks the one it should, by a witness of pinned length."""

from __future__ import annotations

import pytest

from orderlab.model.contracts.feed.specification import Feed
from orderlab.model.explorer.exploration import explore
from orderlab.model.verdict import Outcome


@pytest.mark.parametrize(
    "size",
    [
        pytest.param({"consumers": 1}, marks=pytest.mark.exhaustive),
        {"messages": 2, "consumers": 1},
        {"messages": 2, "consumers": 2},
    ],
    ids=str,
)
def test_the_feed_keeps_every_law(size: dict) -> None:
    found = explore(Feed(**size))
    assert found.complete
    assert [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS] == []


FLAWED = [
    ("reserve-then-write", {"consumers": 0}, "cursor-safe", 5),
    ("watch-after-read", {"consumers": 0}, "cursor-safe", 7),
    ("positional-cursor", {"consumers": 1}, "cursor-safe", 8),
    ("claim-first-n", {"messages": 2}, "exclusive-claim", 5),
    ("expire-while-claimed", {"messages": 2, "consumers": 1}, "retention", 4),
    ("post-again", {"consumers": 0}, "no-repeat", 4),
    ("rank-rolls-back", {"consumers": 0}, "cursor-safe", 4),
]


@pytest.mark.parametrize(("flaw", "size", "law", "steps"), FLAWED)
def test_a_flaw_breaks_its_law(flaw: str, size: dict, law: str, steps: int) -> None:
    found = explore(Feed(flaw=flaw, **size))
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == steps
