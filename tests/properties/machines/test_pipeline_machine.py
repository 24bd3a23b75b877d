"""The pipeline machine: a step is a schedule of faults that the simulator runs; one that loses something is found."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from orderlab.properties.machines.tally import tally_of
from tests.laboratory.pipeline_machine import PipelineUnderFaults
from tests.laboratory.schedules import WAITING

RESTARTS = ("redis-restart", "redis-stall", "script-cache-flush", "slow-consumer")


def search(machine: type[PipelineUnderFaults], number: int, examples: int, shrinks: bool = False) -> None:
    quick = settings(
        max_examples=examples,
        stateful_step_count=2,
        deadline=None,
        database=None,
        phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(number)(machine), settings=quick)


class HarmlessFaults(PipelineUnderFaults):
    """What only delays."""

    names = ("redis-stall", "script-cache-flush", "slow-consumer")


class RestartsWithoutFile(PipelineUnderFaults):
    """A Redis node that restarts has nothing of what it held."""

    settings_of_system: ClassVar = {**WAITING, "appendfsync": "off"}
    names = RESTARTS


class RestartsWithFile(PipelineUnderFaults):
    """A Redis node that restarts reads back every write that it answered."""

    settings_of_system: ClassVar = {**WAITING, "appendfsync": "always"}
    names = RESTARTS


def test_what_only_delays_breaks_no_law() -> None:
    search(HarmlessFaults, 1, 6)
    tally = tally_of("HarmlessFaults")
    assert tally.coverage["fifo"] >= 6
    assert set(tally.steps) & set(HarmlessFaults.names)


def test_a_schedule_that_loses_something_is_found_and_shrinks_to_the_fault_that_matters() -> None:
    with pytest.raises(AssertionError, match="at-least-once is violated: orderlab simulate tbmq-p2p ") as found:
        search(RestartsWithoutFile, 1, 20, shrinks=True)
    (schedule,) = re.findall(r"'faults=(.*?)'", str(found.value))
    assert re.fullmatch(r"redis-restart@0\.\d\d?:[01]", schedule), schedule


def test_the_same_restarts_lose_nothing_where_every_write_is_in_the_file() -> None:
    search(RestartsWithFile, 1, 5)
    tally = tally_of("RestartsWithFile")
    assert tally.steps["redis-restart"] >= 1
    assert tally.coverage["at-least-once"] >= 5
