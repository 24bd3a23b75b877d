"""Replication keeps what was read and acknowledged over one dead leader; each shortcut breaks the law it should, by a witness of pinned length."""

from __future__ import annotations

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.streams.replication import Replication
from orderlab.model.verdict import Outcome


def test_the_repaired_protocol_keeps_every_law() -> None:
    found = explore(Replication())
    assert found.complete
    assert [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS] == []


@pytest.mark.parametrize(
    ("protocol", "law", "steps"),
    [
        ("read-uncommitted", "agreement", 6),
        ("read-uncommitted", "remains", 4),
        ("acknowledge-early", "at-least-once", 4),
        ("any-successor", "remains", 5),
        ("any-successor", "agreement", 8),
    ],
)
def test_a_shortcut_breaks_its_law(protocol: str, law: str, steps: int) -> None:
    found = explore(Replication.model_validate({"protocol": protocol}), Options(keep_going=True))
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == steps
