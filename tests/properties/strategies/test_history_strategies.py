"""Checkers agree with how a history was made: nothing is said of a correct one, the planted law is named of the
others."""

from __future__ import annotations

import pytest
from hypothesis import find, given, settings

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome
from orderlab.properties.strategies.histories import ANOMALIES, Planted, correct_histories, histories_with

QUICK = settings(max_examples=40, database=None, deadline=None, derandomize=True)


def broken(line: str) -> set[str]:
    history = parse_history(line)
    verdicts, _ = judge(in_memory("a line", history.batches, history.names), Question())
    return {verdict.law for verdict in verdicts if verdict.outcome is Outcome.VIOLATED}


@QUICK
@given(correct_histories)
def test_a_correct_history_breaks_nothing(line: str) -> None:
    assert broken(line) == set()


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_the_planted_law_is_named_whatever_came_before(anomaly: str) -> None:
    @settings(QUICK, max_examples=12)
    @given(histories_with(anomaly))
    def named(planted: Planted) -> None:
        assert planted.law in broken(planted.line)

    named()


@pytest.mark.parametrize(
    ("anomaly", "line"),
    [("loss", "S + P1 A1"), ("reorder", "S + P1 A1 P2 A2 D2#1 D1#2"), ("phantom", "S + P1 A1 D1#1 K#1 D2#2")],
)
def test_an_anomaly_shrinks_to_its_own_story(anomaly: str, line: str) -> None:
    assert (
        find(histories_with(anomaly), lambda planted: planted.law in broken(planted.line), settings=QUICK).line == line
    )


@pytest.mark.parametrize("mark", ["T", "E", "C", "!", "K"])
def test_correct_histories_hold_the_rare_things_too(mark: str) -> None:
    assert mark in find(correct_histories, lambda line: mark in line, settings=settings(QUICK, max_examples=500))
