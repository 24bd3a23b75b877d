"""Contracts with mistakes: one line with place and cure, in bounded time, and never a verdict on the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab import code_of_user
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.engine.validation import validate_contract
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.loader import load_binding

TOML = (
    'specification = "counter.py:Counter"\n[keys]\nc = "{n}:c"\n[operations.add]\nscript = "add.lua"\nkeys = '
    '["c"]\nargs = ["<by>"]\n'
)
GOOD = """
import random
from orderlab.contract import AnyOf, Call, Contract, above, law

class Identity:
    pass

class Counter(Contract):
    operations = {"add": ("by",)}

    def initial(self):
        return 0

    def outcomes(self, state, call, now_ms):
        yield state + call["by"], state + call["by"]

    def elapse(self, state, now_ms):
        return state

    def deadlines_ms(self, state):
        return []

    def calls(self, client, seen):
        yield Call.of("add", by=1)
        yield Call.of("add", by=2)

    @law("advances", "the counter advances")
    def advances(self, before, call, reply, now_ms):
        return reply > before
"""
LUA = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
MISTAKES = [
    (
        "raises",
        'yield state + call["by"], state + call["by"]',
        'yield state["x"], 0',
        r"counter.py:15: Counter.outcomes: TypeError",
    ),
    ("exits", 'yield state + call["by"], state', "raise SystemExit(0); yield state", r"outcomes: SystemExit"),
    ("unhashable", "return 0", "return []", r"Counter.initial: .*cannot be hashed.*tuples"),
    ("by identity", "return 0", "return Identity()", r"initial: .*compare states by value"),
    ("nothing allowed", 'yield state + call["by"], state + call["by"]', "return iter(())", r"yields nothing"),
    (
        "no iterable",
        'yield state + call["by"], state + call["by"]',
        "pass",
        r"outcomes: TypeError.*correct the contract",
    ),
    ("no pair", 'yield state + call["by"], state + call["by"]', "yield state", r"yield a reply and the state"),
    ("no plain reply", 'yield state + call["by"], state', "yield True, state", r"a reply is None, an integer"),
    (
        "endless outcomes",
        'yield state + call["by"], state + call["by"]',
        "while True: yield state, state",
        r"leave fewer choices",
    ),
    (
        "endless loop",
        'yield state + call["by"], state + call["by"]',
        "while True: pass\n        yield 0, 0",
        r"does not end",
    ),
    ("endless calls", 'yield Call.of("add", by=2)', 'while True: yield Call.of("add", by=1)', r"calls: more than"),
    (
        "random calls",
        'yield Call.of("add", by=2)',
        'yield Call.of("add", by=random.randint(1, 9))',
        r"calls: asked twice",
    ),
    (
        "random outcomes",
        'yield state + call["by"], state',
        "yield random.randint(1, 10**6), state",
        r"outcomes: asked twice",
    ),
    ("no such operation", 'Call.of("add", by=2)', 'Call.of("ad", by=2)', r'no operation "ad"; one of add'),
    ("no such field", 'Call.of("add", by=2)', 'Call.of("add", to=2)', r"by is missing, to is none"),
    ("a list as field", 'Call.of("add", by=2)', 'Call.of("add", by=[2])', r"no plain value"),
    ("no call", 'yield Call.of("add", by=2)', 'yield "add"', r"give Call.of"),
    (
        "no bool",
        "return reply > before",
        "return reply - before",
        r"law advances: returned .*return True, False or None",
    ),
    ("elapse goes on", "return state\n", "return state + 1\n", r"elapse: .*idempotent"),
    ("deadline", "return []", "return [0.5]", r"deadlines_ms: gave 0.5"),
    ("example", 'yield state + call["by"], state', "yield AnyOf(lambda r: r == 7, 8), state", r"its own example 8"),
    ("clients", "operations =", "clients = 0\n    operations =", r"clients: 0; give a number from 1"),
    (
        "same law",
        '@law("advances", "the counter advances")',
        '@law("a", "x")\n    def a(self, *more): return None\n\n    @law("a", "y")',
        r'a law "a" already',
    ),
    ("no initial", "def initial", "def intial", r"^[^:]*/counter.py: Counter.initial is missing; write initial"),
    ("no calls", "def calls", "def cals", r"^[^:]*/counter.py: Counter.calls is missing; write initial"),
    ("fields as text", '("by",)', '"by"', r'operations\["add"\]|operations\[.add.\]'),
]


def store(folder: Path, contract: str = GOOD, lua: str = LUA) -> Path:
    (folder / "store.toml").write_text(TOML)
    (folder / "counter.py").write_text(contract)
    (folder / "add.lua").write_text(lua)
    return folder


@pytest.mark.parametrize(("old", "new", "said"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES])
def test_a_mistake_of_the_author_is_one_line(
    tmp_path: Path, old: str, new: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_of_user, "SECONDS_MAX", 0.5)
    assert old in GOOD
    store(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError, match=said) as raised:
        validate_contract(load_binding(tmp_path, trust_adapter=True), WorkOrder(0.1))
    assert "\n" not in str(raised.value)


def test_without_a_mistake_it_holds(tmp_path: Path) -> None:
    found = validate_contract(load_binding(store(tmp_path), trust_adapter=True), WorkOrder(0.1))
    assert found.outcome is Outcome.HOLDS


def test_a_law_that_stumbles_over_a_wrong_reply_does_not_hide_it(tmp_path: Path) -> None:
    """``reply > before`` raises for text; the store is wrong all the same, and told so."""
    found = validate_contract(load_binding(store(tmp_path, lua="return 'many'"), trust_adapter=True), WorkOrder(0.1))
    assert [one.law for one in found.results if one.outcome is Outcome.VIOLATED] == ["specification"]


def test_contracts_of_the_same_file_name_do_not_mix(tmp_path: Path) -> None:
    """Both are loaded before either is judged, in a process that pickles what it found."""
    kinds = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        kinds.append(type(load_binding(store(tmp_path / name), trust_adapter=True).contract))
    assert kinds[0].__module__ != kinds[1].__module__
