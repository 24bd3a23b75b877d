"""`specification = "lock"` and `"limiter"`: sound stores hold every law, each neighbour breaks one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orderlab.model.contracts.sequential import Scope
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.sequential.kind import judge_mutant
from orderlab.properties.engine import search
from orderlab.properties.engine.validation import run_of, validate_contract
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.properties.witness.witness import story_lines
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

EFFORT = 0.1
STORE = """
specification = "{specification}"
[promises]
{promises}
[keys]
it = "{{it}}"
{operations}
"""
OPERATION = """
[operations.{name}]
script = "{name}.lua"
keys = ["it"]
args = [{args}]
"""
COMPARE_AND_DELETE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
ONE_HOLDER = {
    "acquire": "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
    "renew": COMPARE_AND_DELETE.replace("redis.call('DEL', KEYS[1])", "redis.call('PEXPIRE', KEYS[1], ARGV[2])"),
    "release": COMPARE_AND_DELETE,
}
COUNTED = {
    "acquire": """if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0""",
    "release": """if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return false end
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left == 0 then redis.call('DEL', KEYS[1]) end
return left""",
}
SEMAPHORE = {
    "acquire": """local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
if redis.call('ZCARD', KEYS[1]) >= 2 then return 0 end
return redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])""",
    "release": "return redis.call('ZREM', KEYS[1], ARGV[1])",
}
FIXED_WINDOW = {
    "hit": """local count = tonumber(redis.call('GET', KEYS[1]) or '0')
if count >= tonumber(ARGV[1]) then return 0 end
if redis.call('INCR', KEYS[1]) == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1"""
}
ARGS = {
    "acquire": '"<token>", "<ttl_ms>"',
    "renew": '"<token>", "<ttl_ms>"',
    "release": '"<token>"',
    "hit": '"<limit>", "<window_ms>"',
}
# A lease that has lapsed lives again where nobody needed its place: ZREM of what is over comes with acquire alone.
REVIVED = {
    **SEMAPHORE,
    "renew": """local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return 1""",
}
FORCED = {**REVIVED, "renew": REVIVED["renew"].replace("redis.call('ZSCORE', KEYS[1], ARGV[1])", "true")}
BY_CALLERS = {
    "acquire": SEMAPHORE["acquire"]
    .replace("local time = redis.call('TIME')\n", "")
    .replace("time[1] * 1000 + math.floor(time[2] / 1000)", "tonumber(ARGV[3])"),
    "release": SEMAPHORE["release"],
}
"""The same by its callers' clocks."""
CALLER = 'tokens = "caller"'
COUNTING = 'tokens = "caller"\nreentrant = "counts"'
TWO = 'tokens = "caller"\nholders = 2'
FROM_FIRST = 'window = "from the first hit"'


def store_of(folder: Path, specification: str, promises: str, scripts: dict[str, str]) -> Binding:
    """A store of these scripts."""
    passed = {name: ARGS[name] + (', "<now_ms>"' if "ARGV[3]" in text else "") for name, text in scripts.items()}
    operations = "".join(OPERATION.format(name=name, args=passed[name]) for name in scripts)
    filled = STORE.format(specification=specification, promises=promises, operations=operations)
    (folder / "store.toml").write_text(filled)
    for name, text in scripts.items():
        (folder / f"{name}.lua").write_text(text)
    return load_binding(folder)


def broken_laws(folder: Path, specification: str, promises: str, scripts: dict[str, str]) -> set[str]:
    """The laws that a store of these scripts breaks, those of the contract alone."""
    binding = store_of(folder, specification, promises, scripts)
    assert binding.contract is not None
    own = {one.name for one in binding.contract.laws}
    results = validate_contract(binding, WorkOrder(EFFORT)).results
    assert own <= {one.law for one in results}
    return own & {one.law for one in results if one.outcome is Outcome.VIOLATED}


@pytest.mark.parametrize(
    ("specification", "promises", "scripts"),
    [
        ("lock", CALLER, ONE_HOLDER),
        ("lock", COUNTING, COUNTED),
        ("lock", TWO, SEMAPHORE),
        ("lock", TWO + '\nlapsed = "renewable"', REVIVED),
        ("lock", TWO + '\nclocks = "agree"', BY_CALLERS),
        ("limiter", FROM_FIRST, FIXED_WINDOW),
    ],
)
def test_a_sound_store_holds(tmp_path: Path, specification: str, promises: str, scripts: dict[str, str]) -> None:
    assert not broken_laws(tmp_path, specification, promises, scripts)


@pytest.mark.parametrize(
    ("specification", "promises", "scripts", "flaw", "law"),
    [
        ("lock", CALLER, ONE_HOLDER, {"release": "return redis.call('DEL', KEYS[1])"}, "own-release"),
        (
            "lock",
            CALLER,
            ONE_HOLDER,
            {"acquire": "return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])"},
            "mutual-exclusion",
        ),
        ("lock", CALLER, ONE_HOLDER, {"acquire": "return redis.call('SET', KEYS[1], ARGV[1], 'NX')"}, "recovery"),
        ("lock", CALLER, ONE_HOLDER, {"renew": "return redis.call('PEXPIRE', KEYS[1], ARGV[2])"}, "mutual-exclusion"),
        ("lock", COUNTING, COUNTED, {"release": COUNTED["release"].replace("left == 0", "true")}, "mutual-exclusion"),
        ("lock", TWO, SEMAPHORE, {"acquire": SEMAPHORE["acquire"].replace(">= 2", "> 2")}, "mutual-exclusion"),
        ("lock", TWO, REVIVED, {}, "mutual-exclusion"),
        ("lock", TWO + '\nlapsed = "renewable"', FORCED, {}, "mutual-exclusion"),
        ("lock", TWO, BY_CALLERS, {}, "mutual-exclusion"),
        ("lock", CALLER, ONE_HOLDER, {"renew": "return 0"}, "lease-kept"),
        (
            "lock",
            TWO,
            SEMAPHORE,
            {"acquire": SEMAPHORE["acquire"].replace("redis.call('ZREMRANGEBYSCORE'", "tostring('ZREMRANGEBYSCORE'")},
            "recovery",
        ),
        ("limiter", FROM_FIRST, FIXED_WINDOW, {"hit": FIXED_WINDOW["hit"].replace(">=", ">")}, "at-most-n"),
        (
            "limiter",
            FROM_FIRST,
            FIXED_WINDOW,
            {
                "hit": FIXED_WINDOW["hit"].replace(
                    "then return 0", "then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 0"
                )
            },
            "no-charge",
        ),
    ],
)
def test_its_neighbour_is_told(
    tmp_path: Path, specification: str, promises: str, scripts: dict[str, str], flaw: dict[str, str], law: str
) -> None:
    assert law in broken_laws(tmp_path, specification, promises, {**scripts, **flaw})


def test_nothing_holds_where_the_smallest_scopes_did_not_come_to_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = store_of(tmp_path, "lock", COUNTING, COUNTED)
    order = WorkOrder(0.01, laws=["mutual-exclusion"])
    (kept,) = validate_contract(binding, order).results
    assert (kept.outcome, kept.because.partition("; ")[0]) == (Outcome.HOLDS, "all runs of 2 clients, 2 operations")
    assert "all runs of 1 client, 2 operations, 1 trouble" in kept.because
    monkeypatch.setattr(search, "CORE_STEPS", 60)  # enough for two operations without trouble
    (cut,) = validate_contract(binding, order).results
    assert cut.outcome is Outcome.UNKNOWN
    assert "all runs of 2 clients, 2 operations; " in cut.because
    assert re.search(r"2 clients, 2 operations, 1 trouble: (all runs of 1, )?stopped after ", cut.because)
    monkeypatch.setattr(search, "CORE_STEPS", 10)
    (cut,) = validate_contract(binding, order).results
    assert cut.outcome is Outcome.UNKNOWN
    assert re.search(
        r" 2 clients, 2 operations: in 0 of 4 situations, else (all runs of 1, )?stopped after ", cut.because
    )


def test_a_scope_that_stopped_says_of_how_many_operations_it_saw_every_run(tmp_path: Path) -> None:
    run = run_of(store_of(tmp_path, "lock", COUNTING, COUNTED))
    scope = Scope("2 clients, 3 operations", 2, 3, 0, 1, opening=None, operations=3)
    part = search.Interleavings(run, scope, search.Search(ContractReruns(lambda: run), Findings(frozenset())), ())
    seen = [part.operations_seen]
    while part.queue:
        begun = {sum(one.begun for one in part.nodes[at].state.clients) for at in part.queue}
        assert part.operations_seen <= min(begun)  # one that is left has begun no more
        part.carry_on(part.queue.popleft())
        seen.append(part.operations_seen)
    assert seen[:-1] == sorted(seen[:-1])
    assert set(seen[:-1]) == {0, 1, 2}


@pytest.mark.parametrize(("edit", "is_ahead"), [(("0", "0"), True), ((">= 2", "> 2"), False)])
def test_a_clock_is_ahead_in_a_witness_that_needs_it(tmp_path: Path, edit: tuple[str, str], is_ahead: bool) -> None:
    scripts = {**BY_CALLERS, "acquire": BY_CALLERS["acquire"].replace(*edit)}
    results = validate_contract(
        store_of(tmp_path, "lock", TWO, scripts), WorkOrder(EFFORT, laws=["mutual-exclusion"])
    ).results
    story = [line for one in results for witness in one.witnesses[:1] for line, _ in story_lines(witness)]
    assert any("whose clock is 700 ms ahead" in line for line in story) == is_ahead
    assert story


@pytest.mark.parametrize("accepted", [True, False])
def test_what_is_accepted_kills_no_mutant(tmp_path: Path, accepted: bool) -> None:
    binding = store_of(tmp_path, "lock", CALLER, {**ONE_HOLDER, "renew": "return 0"})
    if accepted:
        with (tmp_path / "store.toml").open("a") as file:
            file.write('\n[[accept]]\nlaw = "lease-kept"\noperation = "renew"\nwhy = "nobody renews"\n')
        binding = load_binding(tmp_path)
    assert judge_mutant(binding, effort=0.02).outcome == ("survived" if accepted else "killed")
