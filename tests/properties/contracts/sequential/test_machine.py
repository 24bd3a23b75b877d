"""The machine over stores with a contract: it walks far, meets trouble, finds what is wrong, and what it finds is short
and can be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from orderlab.machines import ContractMachine, ContractViolated, contract_machine, load_binding, rule, st
from orderlab.model.errors import InputError
from orderlab.properties.contracts.sequential.kind import SEQUENTIAL
from orderlab.properties.machines.tally import tally_of
from orderlab.sim.redis.backends import KernelBackend

LUA = Path(__file__).parents[4] / "lua"
QUIET = settings(
    stateful_step_count=25,
    database=None,
    deadline=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def ran(machine: type[ContractMachine], examples: int = 30) -> ContractViolated | None:
    try:
        run_state_machine_as_test(seed(0)(machine), settings=settings(QUIET, max_examples=examples))  # type: ignore[no-untyped-call]
    except ContractViolated as violation:
        return violation
    return None


class Meddling(ContractMachine):
    """Ends jobs that it was never given."""

    @rule(client=st.integers(0, 2))
    def takes(self, client: int) -> None:
        self.call(client, "take", token="t", lease_ms=1000)

    @rule(client=st.integers(0, 2))
    def guesses(self, client: int) -> None:
        self.call(client, "complete", job="z0", token="1")


@pytest.mark.parametrize("store", ["feed", "job_queue_blocking"])
def test_a_sound_store_stays_green_and_every_operation_meets_trouble(store: str) -> None:
    machine = contract_machine(load_binding(LUA / store), name=f"Sound_{store}")
    assert ran(machine) is None
    taken = tally_of(machine.__name__).steps
    assert {"wait", "reply-lost", "crashed", "wrong-type"} <= {name.rpartition(" / ")[2] for name in taken}
    # Where an operation has several calls its client may die between them.
    assert ("die" in taken) == (store == "job_queue_blocking")
    assert min(tally_of(machine.__name__).coverage.values()) > 0


def test_what_it_finds_is_short_told_and_replayed() -> None:
    binding = load_binding(LUA / "specimens" / "job-settled-by-any")
    found = ran(contract_machine(binding, Meddling, laws=["exclusive-lease"]), 60)
    assert found is not None
    assert found.trace.law == "exclusive-lease"
    assert len(found.trace.steps) <= 6
    assert "settle.lua:2" in str(found)
    *_, last = SEQUENTIAL.replay(found.trace, binding, KernelBackend())
    assert [law for law, _ in last["broken"]] == ["exclusive-lease"]


def test_its_sound_neighbour_minds_no_meddling() -> None:
    assert ran(contract_machine(load_binding(LUA / "job_queue"), Meddling, laws=["exclusive-lease"]), 60) is None


def test_a_law_that_the_store_is_not_held_to_is_one_line() -> None:
    with pytest.raises(InputError, match="cursor-safe: not a law of JobQueue; one of"):
        contract_machine(load_binding(LUA / "job_queue"), laws=["cursor-safe"])
