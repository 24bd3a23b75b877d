"""The bundled stores with contracts of their own, their specimens, and stores that nobody should trust."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import pytest

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.client_steps import Begin, Die, Fault, Resume, Wait, from_json, to_json
from orderlab.model.contracts.sequential import SequentialTerms
from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.sequential.kind import SEQUENTIAL
from orderlab.properties.engine.memory import Interned, Memory
from orderlab.properties.engine.run import LIMIT_WORK, ContractRun, Core, Remembered
from orderlab.properties.engine.search import Search, explore, troubles_of
from orderlab.properties.engine.validation import (
    ContractValidation,
    contract_of,
    run_of,
    validate_contract,
)
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.witness import story_lines
from orderlab.report.subjects import subject_of_store
from orderlab.sim.redis.backends import KernelBackend, open_backend
from orderlab.sim.redis.error_conditions import WRONG_TYPE_FOUND, imposed
from orderlab.sim.redis.lua.watchdog import Unfinished
from orderlab.sim.redis.shard import Effect, Shard
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path(__file__).parents[4] / "lua"
SPECIMENS = sorted(
    path.parent.name
    for path in (LUA / "specimens").glob("*/store.toml")
    if path.parent.name.startswith(("lock-", "limiter-"))
)
FEW = 0.1
"""Effort enough for every specimen."""


def validated(name: str, effort: float = FEW, seed: int = 0) -> ContractValidation:
    binding = load_binding(LUA / name, trust_adapter=True)
    return validate_contract(binding, WorkOrder(effort, seed))


@pytest.mark.parametrize("name", ["lock", "limiter"])
def test_the_bundled_stores_keep_every_law_and_put_each_to_the_test(name: str) -> None:
    found = validated(name)
    assert {result.law: result.outcome for result in found.results} == {
        result.law: Outcome.HOLDS for result in found.results
    }
    assert all(result.tested for result in found.results)


@pytest.mark.parametrize("name", SPECIMENS)
def test_every_specimen_is_caught_by_the_law_that_it_breaks(name: str) -> None:
    binding = load_binding(LUA / "specimens" / name, trust_adapter=True)
    found = validate_contract(binding, WorkOrder(FEW, laws=binding.specimen.breaks, only_first=True))
    broken = {result.law for result in found.results if result.outcome is Outcome.VIOLATED}
    assert set(binding.specimen.breaks) <= broken
    for result in found.results:
        for one in result.witnesses:
            steps = one.finding.trace.steps
            assert len(steps) <= 10
            reruns = ContractReruns(lambda: ContractRun(binding, binding.contract, KernelBackend(), 3, (0, 700)))
            broken = reruns.broken(steps)
            assert broken is not None
            assert broken[0] == len(steps)
            assert result.law in {told.law for told in broken[1]}
            assert story_lines(one)


def test_the_same_seed_says_the_same() -> None:
    first, second = (validated("specimens/limiter-member-is-time", 0.05, seed=3).to_json() for _ in range(2))
    assert first == second


def test_more_effort_never_tells_less() -> None:
    few, many = (validated("specimens/lock-token-expires", effort) for effort in (0.05, 0.2))
    broken = [{one.law for one in found.results if one.outcome is Outcome.VIOLATED} for found in (few, many)]
    assert broken[0] <= broken[1]


def test_a_witness_is_confirmed_by_a_real_server() -> None:
    binding = load_binding(LUA / "specimens" / "lock-release-any", trust_adapter=True)
    with open_backend("auto") as server:
        found = validate_contract(binding, WorkOrder(0.2, laws=["own-release"], backend=server))
    (result,) = found.results
    assert result.witnesses[0].confirmation.startswith("confirmed on")


def test_python_of_a_store_runs_only_when_it_is_trusted() -> None:
    with pytest.raises(InputError, match="--trust-adapter"):
        load_binding(LUA / "lock")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('specification = "lease.py:Missing"\n', "has no class Missing"),
        ('specification = "../lease.py:Lease"\n', "lies outside"),
        ('specification = "lease.txt:Lease"\n', "is no specification"),
        ('specification = "lease.py:Lease"\n[operations.acquired]\nscript = "acquire.lua"\n', 'did you mean "acquire"'),
        (
            'specification = "lease.py:Lease"\n[operations.acquire]\nscript = "acquire.lua"\nargs = ["<ttl>"]\n',
            'unknown field "ttl"',
        ),
    ],
)
def test_a_wrong_binding_is_one_line(tmp_path: Path, table: str, said: str) -> None:
    for file in (LUA / "lock").iterdir():
        if file.is_file() and file.suffix in (".lua", ".py"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    operations = "" if "[operations" in table else '[operations.acquire]\nscript = "acquire.lua"\n'
    (tmp_path / "store.toml").write_text(table + operations)
    with pytest.raises(InputError, match=said) as raised:
        load_binding(tmp_path, trust_adapter=True)
    assert "\n" not in str(raised.value)


def test_steps_survive_json() -> None:
    steps = [
        Begin(1, Call.of("hit", limit=2, who=b"\xff"), Fault("wrong-type", key=b"k")),
        Resume(0, Fault("crashed", at=2)),
        Die(1),
        Wait(3),
    ]
    assert [from_json(to_json(step), "here") for step in steps] == steps
    with pytest.raises(InputError, match="here"):
        from_json({"step": "jump"}, "here")


def test_a_value_of_the_wrong_type_is_wrong_for_the_commands_that_meet_it() -> None:
    """A list planted under the key of a queue would be a queue that holds what nobody put."""
    run_of = {b"LPUSH": b"string", b"ZADD": b"list", b"GET": b"list"}
    for name, kind in run_of.items():
        effects = [Effect((name, b"k", b"1", b"v"), (b"k",), (), True, 0, None)]
        (trouble,) = [one for one in troubles_of(effects, False) if one.kind == "wrong-type"]
        assert trouble.found.encode() == kind


def test_what_was_planted_goes_even_if_a_deadline_was_set_on_it() -> None:
    shard = Shard()
    with imposed(shard, WRONG_TYPE_FOUND, key=b"k", found="string"):
        shard.execute([b"PEXPIRE", b"k", b"1000"])
    assert shard.execute([b"EXISTS", b"k"]) == 0


def test_a_cap_says_what_it_cut_off_and_lets_nothing_hold_that_was_not_tried() -> None:
    found = validate_contract(load_binding(LUA / "lock", trust_adapter=True), WorkOrder(FEW, budget_s=1e-9))
    assert {result.outcome for result in found.results} == {Outcome.UNKNOWN}
    assert any(
        gap.startswith(f"the cap of 1e-09 s cut off the round {FEW} in: 2 clients, 2 operations") for gap in found.gaps
    )


def test_a_cap_that_is_not_reached_changes_nothing() -> None:
    binding = load_binding(LUA / "specimens" / "limiter-fixed-window", trust_adapter=True)
    assert (
        validate_contract(binding, WorkOrder(0.05, budget_s=1e9)).to_json()
        == validate_contract(binding, WorkOrder(0.05)).to_json()
    )


def test_what_clients_would_never_do_proves_nothing_about_atomicity() -> None:
    """Who releases another's lock breaks that law alone; that a token was never told once its acquire is left out is no
    proof."""
    broken = {one.law for one in validated("specimens/lock-release-any").results if one.outcome is Outcome.VIOLATED}
    assert broken == {"own-release"}
    broken = {one.law for one in validated("specimens/lock-two-calls").results if one.outcome is Outcome.VIOLATED}
    assert "all-or-nothing" in broken


def test_what_was_carried_out_whole_is_not_what_was_stopped_part_way() -> None:
    """A token that lapses is given again after an acquire whose reply was lost: that another was killed before it wrote
    has no part in it."""
    binding = load_binding(LUA / "specimens" / "lock-token-expires", trust_adapter=True)
    reruns = ContractReruns(lambda: ContractRun(binding, binding.contract, KernelBackend(), 3))
    short, long = Call.of("acquire", ttl_ms=1000), Call.of("acquire", ttl_ms=3000)
    killed = Begin(0, long, Fault("killed", at=0))
    lost = Begin(0, short, Fault("reply-lost"))
    steps = (Begin(0, long), Begin(0, Call.of("release", token=1)), lost, Wait(1001), killed, Begin(0, short))
    broken = reruns.broken(steps)
    assert broken is not None
    assert broken[0] == len(steps)
    assert not reruns.is_about_atomicity(steps)


def test_a_script_that_ends_only_with_its_process_breaks_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Unfinished(reason="its process was ended after 40 s", script=None, seconds=40.0)
    monkeypatch.setattr("orderlab.properties.validation.isolated.watch", lambda *_, **__: ended)
    found = SEQUENTIAL.validate(load_binding(LUA / "lock", trust_adapter=True), WorkOrder(1.0, laws=["own-release"]))
    assert found.outcomes == {"own-release": Outcome.UNKNOWN, "bounded": Outcome.VIOLATED}
    bounded = subject_of_store(found).laws[-1]
    assert "does not end" in bounded.because
    assert found.to_json()["laws"][-1]["not_covered"] == [bounded.because]


def test_what_never_ends_costs_many_steps_and_shows_nothing_of_the_contract() -> None:
    binding = load_binding(LUA / "limiter", trust_adapter=True).with_sources({"hit.lua": b"while true do end"})
    contract = contract_of(binding)
    terms = SequentialTerms(contract)
    reruns = ContractReruns(lambda: ContractRun(binding, contract, KernelBackend(), 1))
    search = Search(reruns, Findings(frozenset(terms.laws)))
    explore(reruns.run, next(one for one in terms.scopes if one.clients == 1), search, 0.002)
    calls, rest = divmod(search.findings.work["steps"], LIMIT_WORK)
    # Of the first state alone, where two steps were allowed.
    assert (calls, rest, search.findings.coverage["specification"]) == (2, 0, 0)
    assert set(search.findings.by_law) == {"bounded"}


class Forgetful(Memory[Core, Remembered]):
    """Remembers nothing."""

    def keep(self, asked: Hashable, effect: Remembered) -> None: ...


@pytest.mark.parametrize("name", ["job_queue", "job_queue_blocking", "specimens/lock-release-any"])
def test_a_search_that_remembers_what_steps_did_sees_what_one_sees_that_takes_each_anew(name: str) -> None:
    binding = load_binding(LUA / name, trust_adapter=True)
    scope = next(one for one in SequentialTerms(contract_of(binding)).scopes if one.faults)

    def searched(effects: Memory[Core, Remembered]) -> Search:
        run = run_of(binding, scope.clients)
        run.effects = effects
        search = Search(
            ContractReruns(lambda: run_of(binding)), Findings(frozenset(SequentialTerms(run.contract).laws))
        )
        explore(run, scope, search, 0.3)
        return search

    effects: Memory[Core, Remembered] = Memory()
    first, again, anew = searched(effects), searched(effects), searched(Forgetful())
    assert len(effects) > 100
    for one in (first, again):
        assert one.findings.coverage == anew.findings.coverage
        assert one.findings.work == anew.findings.work
        assert one.findings.by_law == anew.findings.by_law


def test_a_memory_forgets_all_where_there_is_too_much_and_keeps_equal_places_once() -> None:
    memory: Memory[tuple[int, ...], str] = Memory(2)
    first, equal = (tuple(range(2)) for _ in range(2))
    assert memory.first(first) is first
    assert memory.first(equal) is first
    memory.keep(1, "one")
    memory.keep(2, "two")
    assert (memory[1], memory[2]) == ("one", "two")
    memory.keep(3, "three")
    assert list(memory) == [3]
    assert memory.first(equal) is equal
    numbers: Interned[str] = Interned()
    assert [numbers.number(text) for text in ("a", "b", "a")] == [0, 1, 0]
    assert numbers[1] == "b"
