"""Analyses in one process and in several: the same findings, and the same end where a script never ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import Save, Trace
from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.isolated import RunawayScript
from orderlab.properties.validation.schedule import Analysis, Schedule
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.report.subjects import subject_of_store
from orderlab.sim.redis.lua.watchdog import RunningScript, Unfinished
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BudgetExceeded, CpuBudget

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "store",
    [
        "specimens/lock-renew-revives",
        pytest.param("specimens/job-settled-by-any", marks=pytest.mark.exhaustive),
        pytest.param("specimens/published", marks=pytest.mark.exhaustive),
    ],
)
def test_the_same_is_told_by_one_process_and_by_several(store: str) -> None:
    binding = load_binding(ROOT / "lua" / store, trust_adapter=True)
    told = []
    for jobs in (1, 3):
        found = kind_of(binding).validate(binding, WorkOrder(effort=0.01, processes=jobs))
        told.append((json.dumps(found.to_json()), subject_of_store(found).model_dump_json()))
    assert told[0] == told[1]


def schedule(run: dict[str, Callable[[Findings], object]], jobs: int, noted: list[object]) -> Schedule:
    def analysis(name: str, work: Callable[[Findings], object]) -> Analysis:
        return Analysis(name, lambda own, effort, done: work(own), note=noted.append, follows=name.startswith("then"))

    findings = Findings(frozenset({"law"}))
    return Schedule([analysis(name, work) for name, work in run.items()], findings, CpuBudget(), processes=jobs)


@pytest.mark.parametrize("jobs", [1, 2, 9])
def test_what_is_found_is_added_in_the_order_of_the_analyses(jobs: int) -> None:
    left: list[int] = []

    def find(length: int) -> Callable[[Findings], object]:
        def work(own: Findings) -> int:
            assert not own.gaps  # each has findings of its own
            own.add(
                [Discrepancy("law", f"broken {length}"), Discrepancy("other", "no")],
                Trace((Save(()),) * length, (b"c",)),
                "it",
            )
            own.work["steps"] += length
            own.gaps.append(f"gap {length}")
            own.examples.setdefault("such as ", str(length))
            left.append(length)
            return length

        return work

    def follow(own: Findings) -> list[int]:
        return left[-1:]  # where the one before left it

    noted: list[object] = []
    judged = schedule({"c": find(3), "a": find(1), "then": follow, "b": find(2)}, jobs, noted)
    assert judged.round(1.0) == ""
    found = judged.findings
    assert noted == [3, 1, [1], 2]
    assert [len(each.trace.steps) for each in found.by_law["law"]] == [1, 2, 3]
    assert (found.gaps, found.work["steps"], found.broken) == (["gap 3", "gap 1", "gap 2"], 6, {"law": 3, "other": 3})
    assert found.examples == {"such as ": "3"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_scripts_that_are_too_slow_leave_a_gap_and_time_that_is_over_ends_the_round(jobs: int) -> None:
    def slow(own: Findings) -> None:
        raise BudgetExceeded

    noted: list[object] = []
    judged = schedule({"a": slow, "b": len_of_nothing}, jobs, noted)
    assert judged.round(1.0) == ""
    assert judged.findings.gaps == ["a: not finished, the scripts are too slow"]
    assert noted == [None, 0]
    judged.budget.set(0.0, time.monotonic)
    assert judged.round(2.0) == "a"


def len_of_nothing(own: Findings) -> int:
    return len(own.by_law)


def test_errors_of_a_process_are_those_of_the_round() -> None:
    def unusable(own: Findings) -> None:
        raise InputError("no such key")

    def runaway(own: Findings) -> None:
        raise RunawayScript(Unfinished("the script did not end", RunningScript(b"sha", (), ()), 1.0))

    with pytest.raises(InputError, match="no such key"):
        schedule({"a": unusable}, 2, []).round(1.0)

    def endless(own: Findings) -> None:
        time.sleep(600)

    with pytest.raises(RunawayScript) as told:
        schedule({"a": runaway, "b": endless}, 2, []).round(1.0)
    assert told.value.unfinished.script == RunningScript(b"sha", (), ())


def test_processes_share_any_number_of_analyses() -> None:
    noted: list[object] = []
    judged = schedule({f"analysis {number}": len_of_nothing for number in range(700)}, 2, noted)
    assert judged.round(1.0) == ""
    assert noted == [0] * 700
