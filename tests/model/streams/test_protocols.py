"""Each small protocol keeps its laws, and each specimen beside it breaks the one it should, by a witness of pinned
length."""

from __future__ import annotations

from typing import Any

import pytest

from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Options
from orderlab.model.spec.declarative import Specification
from orderlab.model.streams.protocols import (
    SMALL_PROTOCOLS,
    Acknowledgement,
    Clocks,
    LogReplay,
    SessionCollector,
    SessionReplay,
)
from orderlab.model.streams.shared_replay import SharedReplay
from orderlab.model.streams.start_time import StartTime
from orderlab.model.verdict import Outcome

SMALL: dict[type[Specification], dict[str, Any]] = {
    SharedReplay: {"streams": 2, "length": 1},
    LogReplay: {"entries": 2},
    Clocks: {"messages": 2},
    StartTime: {"messages": 2},
}


@pytest.mark.parametrize("kind", SMALL_PROTOCOLS, ids=lambda kind: kind.name)
def test_the_repaired_protocol_keeps_every_law(kind: type[Specification]) -> None:
    found = explore(kind.model_validate(SMALL.get(kind, {})))
    assert found.complete
    bad = [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS]
    assert [(verdict.law, verdict.outcome) for verdict in bad] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", SMALL_PROTOCOLS, ids=lambda kind: kind.name)
def test_and_in_its_own_scope(kind: type[Specification]) -> None:
    found = explore(kind())
    assert found.complete
    assert [verdict for verdict in found.verdicts if verdict.outcome is not Outcome.HOLDS] == []


SPECIMENS = [
    (Clocks, "no-part", {}, "no-loss", 2),  # D3
    (Clocks, "random-part", {}, "fifo", 2),  # D4
    (Clocks, "wall-clock", {}, "fifo", 4),
    (Clocks, "wall-clock", {}, "cursor-safe", 5),
    (SessionReplay, "real-time-first", {}, "fifo", 6),  # D7
    (Acknowledgement, "acknowledge-first", {}, "at-least-once", 3),  # D9
    (LogReplay, "evaluate-again", {}, "agreement", 9),  # D10
    (SharedReplay, "grant-twice", {"streams": 1}, "exclusive-claim", 4),  # D11
    (SharedReplay, "grant-twice", {"streams": 1}, "no-repeat", 6),  # D11
    (SharedReplay, "steal-at-once", {}, "exclusive-claim", 3),
    (SharedReplay, "steal-at-once", {}, "no-repeat", 5),
    (SharedReplay, "unfenced", {"streams": 1, "length": 2}, "cursor-safe", 8),
    (SharedReplay, "no-redispatch", {"streams": 1}, "no-loss(t=0)", 2),
    (SessionReplay, "modulo", {}, "packet-id-law", 9),  # D13
    (SessionCollector, "unguarded", {}, "no-loss", 6),
    (SessionCollector, "check-connected", {}, "no-loss", 7),
    (StartTime, "last-wins", {}, "no-repeat", 5),
    (StartTime, "last-wins", {}, "cursor-safe", 6),
    (StartTime, "last-wins", {}, "from-start", 4),
    (StartTime, "every-connect", {}, "no-repeat", 5),
    (StartTime, "place-at-once", {}, "from-start", 3),
]


@pytest.mark.parametrize(("kind", "protocol", "size", "law", "steps"), SPECIMENS)
def test_a_specimen_breaks_its_law(
    kind: type[Specification], protocol: str, size: dict[str, Any], law: str, steps: int
) -> None:
    found = explore(
        kind.model_validate({**SMALL.get(kind, {}), **size, "protocol": protocol}),
        Options(keep_going=True, laws=(law.partition("(")[0],)),
    )
    (verdict,) = (verdict for verdict in found.verdicts if verdict.law == law)
    assert verdict.outcome is Outcome.VIOLATED
    assert len(verdict.witness.steps) == steps


def test_the_neighbour_of_the_log_replayed_again_logs_outcomes() -> None:
    """Conditions need not be evaluated again where the log holds what they came to."""
    (agreement,) = (
        one
        for one in explore(LogReplay.model_validate({"entries": 2, "protocol": "outcome-logged"})).verdicts
        if one.law == "agreement"
    )
    assert agreement.outcome is Outcome.HOLDS
