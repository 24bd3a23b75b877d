"""The pipeline machine: an example is a schedule of faults that the simulator runs."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from properties.machines.pipeline import PipelineUnderFaults
from properties.machines.tally import tally_of


class HarmlessFaults(PipelineUnderFaults):
    """What only delays."""

    names = ("redis-stall", "script-cache-flush", "slow-consumer")


def test_what_only_delays_breaks_no_law() -> None:
    quick = settings(
        max_examples=6,
        stateful_step_count=6,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(1)(HarmlessFaults), settings=quick)
    tally = tally_of("HarmlessFaults")
    assert tally.met["fifo"] >= 6
    assert set(tally.steps) & set(HarmlessFaults.names)
