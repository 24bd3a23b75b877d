"""Mutants of specifications: which laws notice them, and which law notices none."""

from __future__ import annotations

import ast

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.mutants.specification import (
    JudgedAction,
    SpecificationScore,
    mutants_of_functions,
    mutate_specification,
    reached,
    specification_named,
)

SOURCE = b"""
def step(s):
    require(s.a > 0 and s.b)
    s.a = s.a - 1
    helper(s)

def helper(s):
    if s.done:
        return s
    return s._replace(b=True, c=2)

def law(s):
    return s.a == 7
"""


def made(operator: str, roots: tuple[str, ...] = ("step",)) -> list[str]:
    return [mutant.said for mutant in mutants_of_functions(SOURCE, "m.py", roots, [operator])]


def test_only_actions_and_what_they_call_are_mutated() -> None:
    assert [function.name for function in reached(ast.parse(SOURCE), ["step"])] == ["step", "helper"]


def test_operators_make_exactly_these() -> None:
    assert made("guard-negated") == ["not: s.a > 0 and s.b", "not: s.done"]
    assert made("guard-dropped") == [
        *("dropped: s.a > 0 and s.b", "dropped: s.a > 0", "dropped: s.b"),
        *("dropped: if s.done", "dropped: s.done"),
    ]
    assert made("effect-dropped") == ["dropped: s.a = s.a - 1", "dropped: b = True", "dropped: c = 2"]
    assert made("constant") == [
        *("1 becomes 2", "1 becomes 0", "0 becomes 1", "0 becomes -1"),
        *("True becomes False", "2 becomes 3", "2 becomes 1"),
    ]


def test_a_small_specification_is_judged_and_idle_laws_are_named() -> None:
    found = mutate_specification("die-hard", limit=6)
    assert len(found.judged) == 6
    assert {one.outcome for one in found.judged} <= {"killed", "survived", "equivalent", "timed out"}
    assert set(found.idle_laws) == set(found.laws) - set(found.by_law())


def test_a_law_that_kills_nothing_is_named() -> None:
    (mutant, *_) = mutants_of_functions(SOURCE, "m.py", ["step"], ["constant"])
    score = SpecificationScore("s", ("one", "other"), [JudgedAction(mutant, "killed", ("one",))])
    assert score.idle_laws == ["other"]
    assert score.score == 1.0


def test_an_unknown_specification_is_refused() -> None:
    with pytest.raises(InputError, match="unknown specification"):
        specification_named("sessions")
