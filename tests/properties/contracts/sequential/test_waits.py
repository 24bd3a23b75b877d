"""Clients that wait in a blocking command: a process like any other, woken by others, by time, or never."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.client_steps import Begin, ContractTrace, Die, Fault, Resume, Wait
from orderlab.model.contracts.sequential import Scope
from orderlab.model.errors import InputError
from orderlab.properties.contracts.sequential.kind import SEQUENTIAL
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.search import moments, moves
from orderlab.properties.engine.validation import contract_of
from orderlab.properties.engine.witness import ContractPerformer
from orderlab.properties.witness.confirmation import Confirmer
from orderlab.sim.redis.backends import KernelBackend, open_backend
from orderlab.sim.redis.error_conditions import CRASHED
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import CpuBudget

LUA = Path(__file__).parents[4] / "lua"
TAKE = Call.of("take", token="t", lease_ms=1000)


def add(job: str) -> Call:
    return Call.of("add", job=job, payload=job, delay_ms=0, priority=0, key="")


def run_of(name: str) -> ContractRun:
    binding = load_binding(LUA / name)
    return ContractRun(binding, binding.contract, KernelBackend(), 3)  # type: ignore[arg-type]


def test_a_client_waits_until_another_one_wakes_it() -> None:
    run = run_of("job_queue_blocking")
    assert not run.perform(Begin(0, TAKE)).is_over
    assert run.line == (0,)
    assert run.perform(Resume(0)).is_idle
    assert Resume(0) not in list(moves(run, Scope("", 3, 3), 0))
    run.perform(Begin(1, add("a")))
    assert run.line == ()
    assert run.perform(Resume(0)).reply == ("a", "1", 1, "a")


def test_a_state_holds_who_waits_and_in_which_order() -> None:
    run = run_of("specimens/job-wake-is-consumed")
    run.perform(Begin(1, TAKE))
    run.perform(Begin(0, TAKE))
    before = run.state
    assert before.core.line == (1, 0)
    run.perform(Begin(2, add("a")))
    assert run.line == (0,)  # the one that had waited longest was served
    after = run.state
    run.go_to(before)
    assert run.state.key == before.key
    run.perform(Begin(2, add("a")))
    assert run.state.key == after.key


@pytest.mark.parametrize(
    ("name", "laws"), [("job_queue_blocking", None), ("specimens/job-resumed-in-silence", ("wake-up",))]
)
def test_who_waits_in_vain_is_seen_once_nobody_else_does_anything(name: str, laws: tuple[str, ...] | None) -> None:
    run = run_of(name)
    for step in (Begin(1, Call.of("pause")), Begin(1, add("a")), Begin(0, TAKE)):
        assert run.perform(step).violation is None  # a queue that is paused hands out nothing
    found = run.perform(Begin(1, Call.of("resume"))).violation
    assert laws == (None if found is None else found.laws)
    assert found is None or "of client 1 goes on waiting" in found.text


def test_a_client_that_dies_while_it_waits_leaves_nothing_behind() -> None:
    run = run_of("job_queue_blocking")
    start = run.state
    run.perform(Begin(0, TAKE))
    assert not run.perform(Die(0)).is_part_way
    assert (run.line, run.state.core.keyspace, run.state.core.judged) == ((), start.core.keyspace, start.core.judged)


def test_a_wait_with_a_timeout_ends_by_time(tmp_path: Path) -> None:
    text = (
        (LUA / "job_queue_blocking" / "store.toml")
        .read_text()
        .replace('"LEFT", "LEFT", "0"]', '"LEFT", "LEFT", "0.5"]')
    )
    (tmp_path / "store.toml").write_text(
        text.replace('base = "../job_queue"', f'base = "{LUA.resolve() / "job_queue"}"')
    )
    binding = load_binding(tmp_path)
    run = ContractRun(binding, binding.contract, KernelBackend(), 3)  # type: ignore[arg-type]
    run.perform(Begin(0, TAKE))
    assert 501 in moments(run)
    run.perform(Wait(500))
    assert run.line == (0,)
    run.perform(Wait(1))
    assert run.line == ()
    report = run.perform(Resume(0))
    assert (report.reply, report.violation) == (None, None)


def test_a_crash_of_the_node_ends_every_wait() -> None:
    run = run_of("job_queue_blocking")
    run.perform(Begin(0, TAKE))
    run.perform(Begin(1, add("a"), Fault(CRASHED.name, at=1)))
    assert run.line == ()
    assert [one.pending for one in run.clients] == [None, None, None]


def test_on_a_server_of_one_connection_nobody_waits() -> None:
    binding = load_binding(LUA / "job_queue_blocking")
    with open_backend("fakeredis") as backend:
        run = ContractRun(binding, binding.contract, backend, 3)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="BLMOVE: clients that wait are carried out on the kernel"):
            run.perform(Begin(0, TAKE))


SILENT = (Begin(1, Call.of("pause")), Begin(1, add("a")), Begin(0, TAKE), Begin(1, Call.of("resume")))


def test_clients_wait_on_a_real_server_as_they_do_on_the_kernel() -> None:
    silent, sound = (load_binding(LUA / name) for name in ("specimens/job-resumed-in-silence", "job_queue_blocking"))
    with open_backend("auto") as server:
        witness = ContractTrace(SILENT, 3, law="wake-up")
        assert [one["result"] for one in SEQUENTIAL.replay(witness, silent, server)][-2:] == ["waits", "replied 1"]
        assert (
            Confirmer(server, ContractPerformer(silent, contract_of(silent)), CpuBudget())
            .words(witness, "wake-up", False)
            .startswith("confirmed on")
        )
        assert (
            Confirmer(server, ContractPerformer(sound, contract_of(sound)), CpuBudget())
            .words(witness, "wake-up", False)
            .startswith("not confirmed")
        )
        *_, last = SEQUENTIAL.replay(ContractTrace((*SILENT, Resume(0)), 3), sound, server)
        assert last["result"] == "replied ('a', '1', 1, 'a')"


def test_a_client_that_died_while_it_waited_on_a_server_is_served_nothing() -> None:
    binding = load_binding(LUA / "specimens" / "job-wake-is-consumed")
    with open_backend("auto") as server:
        run = ContractRun(binding, contract_of(binding), server, 3)
        for step in (Begin(0, TAKE), Begin(2, TAKE), Die(0), Begin(1, add("a"))):
            assert run.perform(step).violation is None
        assert list(run.waiting) == []  # the other one was served
        assert run.perform(Resume(2)).reply == ("a", "1", 1, "a")
        run.hang_up()


def test_time_passes_on_a_server_by_waiting_so_that_scripts_see_it() -> None:
    binding = load_binding(LUA / "job_queue")
    delayed = Call.of("add", job="a", payload="a", delay_ms=50, priority=0, key="")
    with open_backend("auto") as server:
        steps = (Begin(0, delayed), Begin(1, TAKE), Wait(60), Begin(1, TAKE))
        told = [(one["result"], one["broken"]) for one in SEQUENTIAL.replay(ContractTrace(steps, 3), binding, server)]
        assert told[-1] == ("replied ('a', '1', 1, 'a')", [])


def test_leases_taken_on_a_server_leave_few_states_open_however_late_replies_come() -> None:
    """A lease begins when the server reads the call. By the clock of a client on a busy machine five of them, each
    begun within milliseconds of its own, came to more states than are kept, and the replay confirmed nothing."""
    binding = load_binding(LUA / "job_queue")
    with open_backend("auto") as server:
        run = ContractRun(binding, contract_of(binding), server, 3)
        for number in range(24):
            lease = Call.of("take", token=f"t{number}", lease_ms=10**6)
            for step in (Begin(0, add(f"j{number}")), Begin(1, lease)):
                assert run.perform(step).violation is None
