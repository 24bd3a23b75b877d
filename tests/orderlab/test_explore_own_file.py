"""`orderlab explore FILE.py`: a user's own specification, in both forms, and one line for what is wrong in it."""

import json

import pytest
from typer.testing import CliRunner

from orderlab.cli import application
from orderlab.model.errors import InputError

PETERSON = '''\
"""Peterson's algorithm (Information Processing Letters 12, 1981): mutual exclusion of two processes."""

from enum import IntEnum
from functools import cached_property
from typing import ClassVar

from orderlab.specification import (
    Array, IndexSet, Invariant, Move, Process, ProcessSystem, Specification, action, boolean, choice, integer, invariant, leads_to,
    require,
)


class At(IntEnum):
    AWAY = 0
    ASKING = 1
    YIELDING = 2
    WAITING = 3
    INSIDE = 4


class Peterson(Specification):
    name: ClassVar[str] = "peterson"
    yields_first: bool = False

    @cached_property
    def processes(self):
        return IndexSet("process", 2)

    def variables(self):
        return {
            "at": Array(self.processes, choice(At)),
            "asks": Array(self.processes, boolean()),
            "turn": integer(0, 1),
        }

    @action(actor="process {p}", p="processes")
    def want(self, s, p):
        require(s.at[p] == At.AWAY)
        s.at[p] = At.ASKING

    @action(actor="process {p}", fair=True, p="processes")
    def raise_flag(self, s, p):
        require(s.at[p] == At.ASKING)
        if self.yields_first:
            s.turn = 1 - p
        else:
            s.asks[p] = True
        s.at[p] = At.YIELDING

    @action(actor="process {p}", fair=True, p="processes")
    def give_way(self, s, p):
        require(s.at[p] == At.YIELDING)
        if self.yields_first:
            s.asks[p] = True
        else:
            s.turn = 1 - p
        s.at[p] = At.WAITING

    @action(actor="process {p}", fair=True, p="processes")
    def enter(self, s, p):
        require(s.at[p] == At.WAITING and (not s.asks[1 - p] or s.turn == p))
        s.at[p] = At.INSIDE

    @action(actor="process {p}", fair=True, p="processes")
    def leave(self, s, p):
        require(s.at[p] == At.INSIDE)
        s.asks[p] = False
        s.at[p] = At.AWAY

    @invariant()
    def mutual_exclusion(self, s):
        return not (s.at[0] == At.INSIDE and s.at[1] == At.INSIDE)

    def is_asking(self, s, p):
        return s.at[p] == At.ASKING

    def is_inside(self, s, p):
        return s.at[p] == At.INSIDE

    no_starvation: ClassVar = leads_to("is_asking", "is_inside", p="processes")


def program(me):
    asks, other_asks = f"asks {me}", f"asks {1 - me}"

    def steps(here, shared):
        if here == "away":
            yield Move("want", "asking")
        elif here == "asking":
            yield Move("raise_flag", "yielding", {asks: True})
        elif here == "yielding":
            yield Move("give_way", "waiting", {"turn": 1 - me})
        elif here == "waiting" and (not shared[other_asks] or shared["turn"] == me):
            yield Move("enter", "inside")
        elif here == "inside":
            yield Move("leave", "away", {asks: False})

    return steps


as_processes = ProcessSystem(
    "peterson-as-processes",
    [Process(f"process {me}", "away", program(me)) for me in (0, 1)],
    {"asks 0": False, "asks 1": False, "turn": 0},
    [Invariant("mutual-exclusion", lambda s: s.locals != ("inside", "inside"))],
)
'''  # noqa: E501
ACTION = """\
from orderlab.specification import Specification, action
from orderlab.specification import integer, invariant


class Counter(Specification):
    def variables(self):
        return {"x": integer(0, 2)}

    @action(actor="p")
    def go(self, s):
        BODY
"""
LAW = """
    @invariant()
    def law(self, s):
        BODY
"""


def explore(*arguments):
    return CliRunner().invoke(application(["explore"]), ["explore", *map(str, arguments)])


@pytest.fixture
def peterson(tmp_path):
    path = tmp_path / "peterson.py"
    path.write_text(PETERSON)
    return path


def test_both_forms_have_the_states_that_spin_counts(peterson):
    for name, laws in (("Peterson", 2), ("as_processes", 0)):
        done = explore(f"{peterson}:{name}", "--json")
        found = json.loads(done.stdout)
        assert (done.exit_code, found["distinct_states"], found["transitions"]) == (0, 34, 62)
        assert sum(verdict["law"].startswith("no-starvation") for verdict in found["verdicts"]) == laws


def test_its_fields_are_parameters_and_its_flaw_is_found(peterson):
    listed = explore(peterson, "--list").stdout
    assert "Peterson: Peterson's algorithm" in listed
    assert "yields_first = False" in listed
    done = explore(f"{peterson}:Peterson", "--set", "yields_first=true", "--json")
    verdict = next(v for v in json.loads(done.stdout)["verdicts"] if v["law"] == "mutual-exclusion")
    assert (done.exit_code, verdict["outcome"], len(verdict["witness"]["steps"])) == (1, "violated", 8)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (PETERSON, "", "which of Peterson, as_processes? name one"),
        (PETERSON, ":Petersen", 'did you mean "Peterson"?'),
        ("x =", "", "own.py:1: SyntaxError"),
        ("\nx = 1 / 0", "", "own.py:2: ZeroDivisionError: division by zero"),
        ("", "", "defines nothing to explore"),
        (
            "from orderlab.contract import Contract\nclass Lock(Contract): pass",
            ":Lock",
            "Lock is the contract of a store; orderlab validate",
        ),
        (ACTION.replace("BODY", "s.x += 1"), "", "own.py:11: SpecificationError: x: 3 is outside its domain 0..2"),
        (ACTION.replace("BODY", "s.y += 1"), "", 'own.py:11: SpecificationError: unknown variable "y"'),
        (
            ACTION.replace("go", "bindings"),
            "",
            "own.py:5: SpecificationError: Counter.bindings: Specification has a method of this name",
        ),
        (ACTION.replace("BODY", "s.x = undefined"), "", "own.py:11: NameError"),
        (
            ACTION.replace("BODY", "s.x = {}['y']"),
            "",
            "own.py:11: KeyError: 'y' (in action go, with x = 0); look up only",
        ),
        (ACTION.replace("BODY", "s.x = 1 // s.x"), "", "own.py:11: ZeroDivisionError: "),
        (ACTION.replace("BODY", "s.x = self.no_such"), "", "own.py:11: AttributeError: "),
        (ACTION.replace("BODY", "s.x = 0.5"), "", "own.py:11: SpecificationError: x: 0.5 is no integer"),
        (ACTION.replace("BODY", "exit(0)"), "", "own.py:11: SystemExit: the text ends the program"),
        (ACTION.replace('"p"', '"p {q}"'), "", 'own.py:9: SpecificationError: actor="p {q}" names something'),
        (ACTION.replace("integer(0, 2)", "2"), "", "own.py:6: SpecificationError: variables: x is 2, no domain"),
        (ACTION.replace("(self, s)", "(self, s, p)"), "", "own.py:9: SpecificationError: Counter.go: declared with no"),
        (ACTION + LAW.replace("BODY", "s.x < 3"), "", "own.py:13: SpecificationError: law: returned None"),
        (ACTION + LAW.replace("BODY", "s.x = 1"), "", "own.py:15: SpecificationError: x: assigned in a law"),
        (ACTION + LAW.replace("()", "(when='x')"), "", 'own.py:13: SpecificationError: Counter: no predicate "x"'),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(tmp_path, text, name, message):
    path = tmp_path / "own.py"
    path.write_text(text)
    done = explore(f"{path}{name}")
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_file_that_is_not_there(tmp_path):
    assert "no such file" in str(explore(tmp_path / "nothing.py").exception)
