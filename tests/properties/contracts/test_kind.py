"""The table of kinds: every specification that a binding may name has one, and all give what is asked of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import get_args

import pytest

from orderlab.model.contracts.client_steps import ContractTrace
from orderlab.model.contracts.session.traces import Trace, Wait
from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import KINDS, OWN, Kind, kind_named, kind_of, trace_from_json
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.session import Specification

LUA = Path(__file__).parents[3] / "lua"
ASKED = [name for name, member in vars(Kind).items() if inspect.isfunction(member) and not name.startswith("_")]


def test_every_specification_has_a_kind() -> None:
    assert set(KINDS) == {*get_args(Specification), OWN}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_takes_what_is_asked_of_it(name: str) -> None:
    kind = kind_named(name)
    for method in ASKED:
        wanted = list(inspect.signature(getattr(Kind, method)).parameters)[1:]
        assert list(inspect.signature(getattr(kind, method)).parameters) == wanted, method


@pytest.mark.parametrize(
    ("folder", "name", "law"),
    [("session", "session", "no-loss"), ("pending", "pending", "no-loss"), ("lock", "Lease", "fencing")],
)
def test_a_store_finds_its_kind_and_laws(folder: str, name: str, law: str) -> None:
    binding = load_binding(LUA / folder, trust_adapter=True)
    kind = kind_of(binding)
    terms = kind.terms(binding)
    assert terms.name == name
    assert terms.laws[law]
    assert terms.scopes
    assert set(terms.situations) <= set(terms.laws)
    assert kind.check_law(binding, law) == law
    with pytest.raises(InputError):
        kind.check_law(binding, "no such law")


def test_a_trace_finds_its_kind() -> None:
    for trace in (Trace((Wait(3),)), ContractTrace((), 2, contract="Lease")):
        assert trace_from_json(trace.to_json(), "here") == trace
    for nothing in (None, 3, [], {}):
        with pytest.raises(InputError, match="here"):
            trace_from_json(nothing, "here")
