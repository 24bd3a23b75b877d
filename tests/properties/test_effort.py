"""Effort: the same report on every machine, never less for more, and a cap that says what it cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.validation.validation import validate
from orderlab.properties.validation.effort import QUICK, STANDARD, THOROUGH, effort_named, name_of_effort, rounds_of
from orderlab.properties.validation.specimens import find_specimens
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path(__file__).parents[2] / "lua"
STORES = Path(__file__).parent / "stores"


def test_rounds_begin_with_those_of_each_smaller_effort() -> None:
    assert rounds_of(QUICK) == [1]
    assert rounds_of(STANDARD) == [1, 10]
    assert rounds_of(THOROUGH) == [1, 10, 50]
    assert rounds_of(0.2) == [0.2]
    assert rounds_of(300) == [1, 10, 50, 250, 300]


@pytest.mark.parametrize("text", ["quick", "standard", "thorough", "7", "0.5"])
def test_an_effort_has_its_name_back(text: str) -> None:
    assert name_of_effort(effort_named(text)) == text


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "nan", "inf", "1e9"])
def test_no_other_effort_is_taken(text: str) -> None:
    with pytest.raises(InputError, match="--effort"):
        effort_named(text)


def test_a_report_has_the_same_bytes_whatever_the_hash_seed() -> None:
    told = []
    for number in ("0", "77"):
        asked = [
            "validate",
            "--json",
            "--effort",
            "0.1",
            "--backend",
            "kernel",
            "--law",
            "no-loss",
            str(LUA / "specimens" / "fetch-removes"),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": number}
        done = subprocess.run([sys.executable, "-m", "orderlab.cli", *asked], capture_output=True, env=environment)
        assert done.returncode == 1
        told.append(done.stdout)
    assert told[0] == told[1]
    assert json.loads(told[0])["effort"] == "0.1"


def test_a_cap_says_what_it_cut_off() -> None:
    found = validate(load_binding(LUA / "session"), WorkOrder(QUICK, laws=["no-loss"], budget_s=0.001))
    assert any("the cap of 0.001 s cut off the round quick in: scenarios" in gap for gap in found.gaps)


def tells_no_less(store: Path, smaller: float, larger: float, laws: tuple[str, ...]) -> None:
    """With the larger effort what is violated stays so, what holds is not unknown, and no cause is left out."""
    few, many = (validate(load_binding(store), WorkOrder(effort, laws=laws)).results for effort in (smaller, larger))
    for one, other in zip(few, many, strict=True):
        told = store.name, one.verdict.law, str(one.outcome), str(other.outcome)
        assert other.outcome is one.outcome or other.outcome is Outcome.VIOLATED or one.outcome is Outcome.UNKNOWN, told
        assert len(other.others) >= len(one.others), told


@pytest.mark.parametrize("name", ["fetch-removes", pytest.param("expire-on-the-queue", marks=pytest.mark.exhaustive)])
def test_a_larger_effort_never_tells_less(name: str) -> None:
    tells_no_less(LUA / "specimens" / name, 0.05, 0.3, ("no-loss", "expiry", "drain"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "store", [binding.path for binding in find_specimens()] + sorted(STORES.iterdir()), ids=lambda path: path.name
)
def test_a_larger_effort_never_tells_less_of_any_store(store: Path) -> None:
    tells_no_less(store, QUICK, 2 * QUICK, STORE_LAWS)


@pytest.mark.exhaustive
def test_nine_laws_fall_on_the_published_design() -> None:
    """As README and notes/performance.md say."""
    found = validate(load_binding(LUA / "specimens" / "published"), WorkOrder(QUICK))
    assert [result.verdict.law for result in found.results if result.outcome is Outcome.VIOLATED] == [
        *("no-loss", "packet-id", "legal-trim", "expiry", "no-residue", "all-or-nothing", "one-slot"),
        *("retransmission", "no-phantom"),
    ]
