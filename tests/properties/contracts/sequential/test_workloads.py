"""What feeds and job queues cost and break in `orderlab compare`: stores that are known to differ do."""

import pytest

from orderlab.model.contracts.base import Exchange
from orderlab.model.contracts.client_steps import Begin
from orderlab.model.contracts.feed.contract import FeedStore
from orderlab.model.contracts.job_queue.contract import JobQueue
from orderlab.model.contracts.limiter.contract import LimiterStore
from orderlab.model.contracts.lock.contract import LockStore
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.contracts.sequential.side_by_side import faults, measured, workload_of
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.validation import contract_of
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.loader import load_binding
from tests.in_process import ROOT

FEW = 300


def loaded(name):
    binding = load_binding(ROOT / "lua" / name)
    contract = contract_of(binding)
    return binding, contract, workload_of(contract, binding)


@pytest.mark.parametrize(
    ("name", "fault", "law"),
    [
        ("specimens/feed-posts-again", "lost-reply", "no-repeat"),
        ("specimens/job-taken-is-popped", "killed", "all-or-nothing"),
        ("specimens/job-wake-is-consumed", "client-dies", "wake-up"),
    ],
)
def test_a_flaw_shows_under_its_fault_and_its_neighbour_keeps_all(name, fault, law):
    assert law in faults(*loaded(name), (fault,))[fault]
    assert faults(*loaded("feed" if "feed" in name else "job_queue"), (fault, "read-only")) == {
        fault: "kept",
        "read-only": "kept",
    }


def test_each_store_costs_what_it_is_known_to():
    feed, watched, jobs, blocking = (
        measured(*loaded(name), FEW) for name in ("feed", "feed_watched", "job_queue", "job_queue_blocking")
    )
    # WATCH, HGET, MULTI, EXEC around each post, and no INCR within.
    assert watched.commands - feed.commands == pytest.approx(4)
    assert watched.latency_ms > feed.latency_ms
    blmove = len(b"*6\r\n$6\r\nBLMOVE\r\n" + 2 * b"$13\r\n{orders}:jobs_\r\n" + 2 * b"$4\r\nLEFT\r\n" + b"$1\r\n0\r\n")
    assert blocking.bytes - jobs.bytes > blmove
    assert all(0 < one.memory_bytes < 1000 for one in (feed, watched, jobs, blocking))


def test_what_moves_all_at_once_blocks_longer_the_more_there_is():
    blocked = {
        name: [measured(*loaded(name), limit).blocking_ms for limit in (FEW, 3 * FEW)] for name in ("feed", "job_queue")
    }
    assert blocked["feed"][1] > 2 * blocked["feed"][0]
    assert blocked["job_queue"][1] == pytest.approx(blocked["job_queue"][0], rel=0.1)  # a hundred at a time


def test_an_operation_that_fails_is_named_and_the_rest_is_counted():
    binding, contract, workload = loaded("feed")
    source = next(one.source for one in binding.scripts if one.name == "settle.lua")
    cost = measured(binding.with_sources({"settle.lua": b"error('no')\n" + source}), contract, workload, 50)
    assert cost.blocking_by.endswith("; renew, release failed")
    assert cost.commands == measured(binding, contract, workload, 50).commands


def test_a_contract_of_an_owner_has_no_workload():
    binding = load_binding(ROOT / "lua" / "lock", trust_adapter=True)
    assert kind_of(binding).measured(binding, 0) is None


@pytest.mark.parametrize(("is_cut", "replies"), [(True, {"ok"}), (False, {"an error"})])
def test_a_claim_of_more_than_unpack_takes_is_renewed_and_released(tmp_path, is_cut, replies):
    """Cut into pieces of a thousand, it is; in one piece the script fails, and the contract's crowd shows it."""
    store = ROOT / "lua" / "feed"
    if not is_cut:
        (tmp_path / "store.toml").write_text(
            f'base = "{store}"\n[[edits]]\nscript = "settle.lua"\nfind = "for from = 1, #names, 1000 do"\nreplace = '
            '"for from = 1, #names, 9000 do"\n'
            '[[edits]]\nscript = "settle.lua"\nfind = "math.min(from + 999, #names)"\nreplace = "#names"\n'
        )
        store = tmp_path
    binding = load_binding(store)
    contract = contract_of(binding)
    run = ContractRun(binding, contract, KernelBackend(), 2)
    crowd = next(one for one in contract.crowds() if one.name == "messages under one claim")
    for client, call in crowd.steps(crowd.sizes[1]):
        assert run.perform(Begin(client, call)).violation is None
    reached, seen = run.state, set()
    for call in contract.calls(0, run.clients[0].seen):
        if call.name in ("renew", "release"):
            run.go_to(reached)
            report = run.perform(Begin(0, call))
            assert (report.violation is None) == is_cut
            seen.add(report.reply if is_cut else "an error" if "unpack" in str(report.reply) else report.reply)
    assert seen == replies


@pytest.mark.parametrize(
    ("kind", "operation", "field"),
    [
        (JobQueue, "take", "token"),
        (FeedStore, "claim", "token"),
        (LockStore, "acquire", "token"),
        (LimiterStore, "hit", "request"),
    ],
)
def test_a_client_that_has_forgotten_its_first_calls_makes_no_name_again(kind, operation, field):
    """Of a long run the growth of a store is measured by; a name that came before would hide that it is kept."""
    contract = kind()
    made, seen = [], []
    for _ in range(60):
        call = next(one for one in contract.calls(0, seen) if one.name == operation)
        made.append(call[field])
        seen = [*seen, Exchange(call, None)][-24:]
    assert len(set(made)) == 60
