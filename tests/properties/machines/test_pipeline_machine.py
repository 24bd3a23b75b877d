"""The pipeline machine: an example is a schedule of faults that the simulator runs."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from model.verdict import Outcome
from properties.machines.pipeline import PipelineUnderFaults, simulate
from properties.machines.tally import tally_of
from properties.strategies.pipelines import Strike


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


def test_a_restart_without_a_file_is_accused_and_with_one_it_is_not() -> None:
    waiting = {"publishers": 60, "rate": 20.0, "warm_up_s": 0.1, "duration_s": 0.7, "drain_s": 3.0}
    settings_of_run = {**waiting, "brokers": 2, "offline_share": 0.6, "offline_s": 0.4}
    for appendfsync, laws in (("no", {"at-least-once"}), ("always", set())):
        verdicts = simulate({**settings_of_run, "appendfsync": appendfsync}, [Strike(500, "redis-restart")], 1)
        assert {one.law for one in verdicts if one.outcome is Outcome.VIOLATED} == laws
