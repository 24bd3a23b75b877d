"""The machines over a store: they reach what is rare, find known defects and make them short, and leave a good store
alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from orderlab.model.contracts.session.contract import BY_LAW
from orderlab.model.contracts.session.spec import LONGEST_INTERVAL_S
from orderlab.model.contracts.session.traces import Fetch, Interleave, Open, Save, Wait
from orderlab.properties.contracts.session.machines.concurrent_writers import OperationsInTrouble
from orderlab.properties.contracts.session.machines.hostile_clients import HostileClients
from orderlab.properties.contracts.session.machines.on_store import ALL, machines_for, on_backend, on_kernel
from orderlab.properties.contracts.session.machines.queue import PacketIdentifiers
from orderlab.properties.contracts.session.machines.session import Sessions
from orderlab.properties.contracts.session.machines.store import LawViolated, StoreMachine
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.exploration import small_world
from orderlab.properties.contracts.session.validation.single_law import search
from orderlab.properties.machines.tally import TALLIES, tally_of
from orderlab.properties.profiles import PROFILES, Profile
from orderlab.properties.validation.findings import Findings
from orderlab.sim.redis.backends import Backend, open_backend
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.session import Callers

LUA = Path(__file__).parents[5] / "lua"
SHORT = Profile("short", 10, 15)


def small(name: str) -> Subject:
    return small_world(Subject(load_binding(LUA / name)), Findings(frozenset()))


@pytest.fixture(params=["kernel", "fakeredis", pytest.param("auto", marks=pytest.mark.server)])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with open_backend(request.param) as opened:
        yield opened


@pytest.mark.parametrize("machine", [*ALL, HostileClients], ids=lambda machine: machine.__name__)
def test_a_correct_store_stays_green(machine: type[StoreMachine]) -> None:
    assert search(on_kernel(machine, small("session"), f"Green{machine.__name__}"), SHORT, 1, None, False) is None


@pytest.mark.parametrize("machine", ALL, ids=lambda machine: machine.__name__)
def test_each_machine_runs_on_every_backend(machine: type[StoreMachine], backend: Backend) -> None:
    few = Profile("few", 2, 10)
    on = on_backend(machine, load_binding(LUA / "session"), backend, f"On{machine.__name__}", can_wait=False)
    assert search(on, few, 1, None, False) is None


def test_the_rare_situations_of_every_law_come_about() -> None:
    TALLIES.clear()
    subject = small("session")
    for machine in (*ALL, HostileClients):
        on = on_kernel(machine, subject, machine.__name__)
        assert search(on, Profile("rare", 25, 25), 4, None, False) is None
    coverage: Counter[str] = Counter()
    for tally in TALLIES.values():
        coverage.update(tally.coverage)
    wanted = {one.name for law, situations in BY_LAW.items() if law != "bounded" for one in situations}
    assert wanted <= coverage.keys(), wanted - coverage.keys()
    for machine in ALL:
        rules = {name for name in dir(machine) if hasattr(getattr(machine, name), "hypothesis_stateful_rule")}
        fired = {name.replace(" ", "_") for name in tally_of(machine.__name__).rules}
        assert rules - fired <= {"overlap", "interleave", "client_dies"}, rules - fired


@pytest.mark.parametrize(
    ("specimen", "law"),
    [("fetch-removes", "no-loss"), ("score-is-packet-id", "store-order"), ("client-breaks-the-hash-tag", "one-slot")],
)
def test_a_specimen_is_found_and_shrinks(specimen: str, law: str) -> None:
    kind = machines_for(law)[0]
    machine = on_kernel(kind, small(f"specimens/{specimen}"), f"Red{kind.__name__}", laws=frozenset([law]))
    found = search(machine, PROFILES["ci"], 3, None)
    assert found is not None
    violation, blob = found
    assert isinstance(violation, LawViolated)
    assert {one.law for one in violation.discrepancies} == {law}
    assert len(violation.steps) <= 5, violation.steps
    assert blob.startswith("@reproduce_failure(")


@pytest.mark.parametrize("opens_blindly", [True, False])
def test_a_connect_that_fails_between_two_effects_is_found(opens_blindly: bool) -> None:
    """One that asks for the size of the index first fails before anything is written; one that does not, in between."""
    binding = load_binding(LUA / "session")
    sources = {script.name: script.source for script in binding.scripts}
    if opens_blindly:
        asks = b"call('ZCARD', index)"
        assert asks in sources["open.lua"]
        sources["open.lua"] = sources["open.lua"].replace(asks, b"tonumber(redis.pcall('ZCARD', index)) or 0")
    subject = small_world(Subject(binding.with_sources(sources)), Findings(frozenset()))
    machine = on_kernel(OperationsInTrouble, subject, "BlindConnect", laws=frozenset(["all-or-nothing"]))
    found = search(machine, PROFILES["dev"], 1, None)
    assert (found is not None) == opens_blindly
    if found is not None:
        violation, _ = found
        assert isinstance(violation, LawViolated)
        assert isinstance(violation.steps[-1], Open)


@pytest.mark.parametrize("checks", [True, False])
def test_no_limit_that_a_queue_cannot_keep_is_given_unless_the_store_promises_to_decline_it(checks: bool) -> None:
    """Every verdict says that none was: a store that does not check it is correct all the same."""
    binding = load_binding(LUA / "session")
    sources = {script.name: script.source for script in binding.scripts}
    if not checks:
        sources["save.lua"] = sources["save.lua"].replace(b"whole(ARGV[2], 1, LAST_ID)", b"tonumber(ARGV[2])")
        assert b"= tonumber(ARGV[2])" in sources["save.lua"]
        binding = binding.with_store(binding.store.model_copy(update={"callers": Callers()}))
    machine = on_kernel(
        Sessions, small_world(Subject(binding.with_sources(sources)), Findings(frozenset())), "Unlimited"
    )()
    for limit, kept in ((100, 3), (65536, 3), (2, 2), (0, 2 if checks else 1)):
        machine.take(Save(machine.batch([(None, 1)] * 4), limit=limit))
        assert len(machine.live(0)) == kept
    assert [step.limit for step in machine.steps] == ([3, 65536, 2, 0] if checks else [3, 3, 2, 1])
    both = Interleave(Save((), limit=4), Save((), limit=2))
    assert machine.within_limits(both) == Interleave(Save((), limit=3), Save((), limit=2))
    machine.teardown()


def test_no_example_reaches_a_time_whose_deadlines_have_fourteen_digits() -> None:
    """Twice 136 years from now is 2297; many a store writes 9999999999999 (2286) for "never"."""
    machine = on_kernel(Sessions, small("session"), "LongAgo")()
    longest_ms = LONGEST_INTERVAL_S * 1000
    for ms in (1 << 31) * 1000, longest_ms, 40_000_000_000:
        machine.take(Wait(ms))
    machine.take(Save(machine.batch([(longest_ms, 1)])))
    machine.take(Fetch())
    assert [step.ms for step in machine.steps if isinstance(step, Wait)] == [(1 << 31) * 1000, 40_000_000_000]
    machine.teardown()


def test_packet_identifiers_start_anywhere_at_full_scale() -> None:
    subject = Subject(load_binding(LUA / "session"))
    machine = on_kernel(PacketIdentifiers, subject, "FullScale", passes_max=70_000)
    assert search(machine, Profile("one", 2, 3), 5, None, False) is None
    assert tally_of("FullScale").steps["pass"] >= 1


def test_steps_can_be_taken_by_hand() -> None:
    machine = on_kernel(Sessions, small("session"), "ByHand")()
    machine.take(Save(machine.batch([(None, 1)]), limit=3))
    machine.take(Fetch())
    assert machine.live(0) == [1]
    machine.teardown()
    assert machine.live(0) == []
