"""Stores with contracts of their own in the other commands: replay, the pytest plugin, mutate."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.client_steps import Begin, ContractTrace, Fault, Resume, Wait
from orderlab.model.errors import InputError
from orderlab.properties.mutants.campaign import Campaign
from orderlab.properties.mutants.mutant import sample
from orderlab.properties.mutants.operators import mutants_of
from orderlab.sim.stores.binding.loader import load_binding
from tests import in_process

LOADED = (
    []
    if any(one.name == "orderlab" for one in entry_points(group="pytest11"))
    else ["-p", "orderlab.properties.plugin"]
)
LUA = Path(__file__).parents[4] / "lua"
FLAWED = LUA / "specimens" / "lock-release-any"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, check=False, timeout=300
    )


def orderlab(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return in_process.orderlab(*arguments, cwd=folder)


def test_a_witness_is_replayed_and_its_neighbour_passes(tmp_path: Path) -> None:
    options = ["--trust-adapter", "--effort", "0.2", "--backend", "kernel", "--json", "--law", "own-release"]
    found = orderlab(tmp_path, "validate", str(FLAWED), *options)
    assert found.returncode == 1
    (tmp_path / "found.json").write_text(found.stdout)
    again = orderlab(tmp_path, "replay", "found.json", "--trust-adapter", "--backend", "auto")
    assert again.returncode == 1
    assert "own-release is violated: release(token=1) replied 1; allowed: 0" in again.stdout
    right = orderlab(tmp_path, "replay", "found.json", "--trust-adapter", "--store", str(LUA / "lock"), "--json")
    assert right.returncode == 0
    assert not any(one["broken"] for one in json.loads(right.stdout)["steps"])
    other = orderlab(tmp_path, "replay", "found.json", "--store", str(LUA / "session"))
    assert other.returncode == 2
    assert "name another with --store" in other.stderr


def test_a_trace_survives_json_and_a_wrong_one_is_one_line() -> None:
    steps = (Begin(1, Call.of("hit", who=b"\xff", of=(1, ("a",))), Fault("killed")), Resume(0), Wait(3))
    trace = ContractTrace(steps, 2, (0, 700), "lua/lock", "Lease", "fencing", 4)
    told = json.loads(json.dumps(trace.to_json()))
    assert ContractTrace.from_json(told, "here") == trace
    for wrong in (
        {"schema": 2},
        {"steps": 1},
        {"clients": 1},
        {"clients": "x"},
        {"steps": [{"step": "wait", "ms": -1}]},
    ):
        with pytest.raises(InputError, match="here"):
            ContractTrace.from_json(told | wrong, "here")


def test_the_plugin_has_a_test_for_each_law(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    options = ["-m", "pytest", *LOADED, "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    options += ["--orderlab-trust-adapter", "--orderlab-store"]
    listed = run(tmp_path, *options, str(LUA / "lock"), "--collect-only", "-q")
    assert "9 tests collected" in listed.stdout
    failed = run(tmp_path, *options, str(FLAWED), "--orderlab-law", "own-release", "--orderlab-law", "fencing")
    assert failed.returncode == 1
    assert "1 failed, 1 passed" in failed.stdout
    assert "replay it: orderlab replay .orderlab/lock-release-any-own-release.json --trust-adapter" in failed.stdout
    again = orderlab(tmp_path, "replay", ".orderlab/lock-release-any-own-release.json", "--trust-adapter")
    assert again.returncode == 1
    unknown = run(tmp_path, *options, str(FLAWED), "--orderlab-law", "drain")
    assert "--orderlab-law drain: not a law of a store; one of all-or-nothing" in unknown.stderr


def test_mutants_of_a_store_with_a_contract_are_killed() -> None:
    binding = load_binding(LUA / "lock", trust_adapter=True)
    judged = Campaign(binding, sample(mutants_of(binding, ["relational", "return"]), 2, 0), 0, 60.0, 1).run()
    assert [one.result.outcome for one in judged] == ["killed"] * 2
    assert all(one.result.trace is not None for one in judged)


def test_mutants_of_a_flawed_store_are_refused() -> None:
    binding = load_binding(LUA / "specimens" / "limiter-client-clock", trust_adapter=True)
    with pytest.raises(InputError, match="the store itself breaks"):
        Campaign(binding, sample(mutants_of(binding, ()), 1, 0), 0, 60.0, 1).run()
