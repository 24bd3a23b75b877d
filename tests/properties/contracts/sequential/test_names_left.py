"""What stores leave behind of names: of jobs, messages, holders, readers and requests that came to their end.

Each is a slip in a store of ``other_styles``: something stays in a set or a hash.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from orderlab.properties.engine import growth
from orderlab.properties.engine.growth import measure
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.validation import contract_of, run_of
from orderlab.sim.redis.backends import KernelBackend
from tests.properties.contracts.sequential.test_other_styles import store

SLIPS = {
    "a job's owner stays": (
        "unique_queue",
        "done.lua",
        "return 1\n",
        "redis.call('HSET', KEYS[3] .. ':was', ARGV[1], ARGV[2])\nreturn 1\n",
    ),
    "every job's name stays": (
        "unique_queue",
        "add.lua",
        "redis.call('LPUSH', KEYS[1], ARGV[1])\n",
        "redis.call('LPUSH', KEYS[1], ARGV[1])\nredis.call('SADD', KEYS[1] .. ':seen', ARGV[1])\n",
    ),
    "a job that comes again is counted": (
        "unique_queue",
        "add.lua",
        "redis.call('LPUSH', KEYS[1], ARGV[1])\n",
        "redis.call('LPUSH', KEYS[1], ARGV[1])\nlocal last = KEYS[1] .. ':last'\n"
        "if redis.call('HEXISTS', last, ARGV[1]) == 1 then redis.call('HINCRBY', KEYS[1] .. ':again', ARGV[1], 1) end\n"
        "redis.call('DEL', last) redis.call('HSET', last, ARGV[1], 1)\n",
    ),
    "a lock keeps its owners": (
        "counting_lock",
        "lock.lua",
        "redis.call('HINCRBY'",
        "redis.call('SADD', KEYS[1] .. ':owners', ARGV[1])\nredis.call('HINCRBY'",
    ),
    "a shared lock counts by owner": (
        "counted_lock",
        "share.lua",
        "redis.call('PEXPIRE'",
        "redis.call('HINCRBY', KEYS[1] .. ':shares', ARGV[1], 1)\nredis.call('PEXPIRE'",
    ),
    "who waited in line stays": (
        "fair_lock",
        "acquire.lua",
        "redis.call('RPUSH', KEYS[2], ARGV[1]) end",
        "redis.call('RPUSH', KEYS[2], ARGV[1]) redis.call('HINCRBY', KEYS[2] .. ':waits', ARGV[1], 1) end",
    ),
    "a semaphore keeps its holders": (
        "semaphore",
        "release.lua",
        "return redis.call('ZREM'",
        "redis.call('SADD', KEYS[1] .. ':left', ARGV[1])\nreturn redis.call('ZREM'",
    ),
    "a deleted message's text stays": ("scored_feed", "drop.lua", "redis.call('HDEL', KEYS[2], ARGV[1])\n", ""),
    "a reader's last page stays": (
        "topic_readers",
        "read.lua",
        "return rows\n",
        "redis.call('HSET', KEYS[2] .. ':read', ARGV[1], 1)\nreturn rows\n",
    ),
    "a limiter keeps its requests": (
        "log_limiter",
        "hit.lua",
        "return 1\n",
        "redis.call('SADD', KEYS[1] .. ':seen', now)\nreturn 1\n",
    ),
}


def grown(folder: Path, style: str, script: str = "", find: str = "", replaced: str = "") -> str:
    """What many rounds leave behind in that style, with that text in the place of another."""
    binding = store(folder, style)
    if script:
        source = next(one.source for one in binding.scripts if one.name == script).decode()
        assert source.count(find) == 1
        binding = binding.with_sources({script: source.replace(find, replaced).encode()})
    found = measure(lambda: run_of(binding, max(3, contract_of(binding).clients + 1)), lambda: False)
    assert found.tested, (found.why_not, found.broken and found.broken[1])
    return found.keys


@pytest.mark.parametrize("slip", SLIPS)
def test_names_that_stay_are_left_behind(tmp_path: Path, slip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is found after few rounds and lasts is found after many.
    monkeypatch.setattr(growth, "ROUNDS", ((8, 16),))
    assert grown(tmp_path, *SLIPS[slip])


@pytest.mark.parametrize("style", ["counting_lock", "counted_lock", "fair_lock", "topic_readers"])
def test_a_store_that_forgets_names_leaves_nothing_behind(tmp_path: Path, style: str) -> None:
    assert not grown(tmp_path, style)


def test_a_limiter_whose_key_has_no_deadline_leaves_it_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "ROUNDS", ((4, 8),))
    assert not grown(tmp_path / "window", "fixed_window")
    assert not grown(tmp_path / "log", "log_limiter")
    expire = "redis.call('PEXPIRE', KEYS[1], window + 1)"
    found = grown(tmp_path / "slip", "log_limiter", "hit.lua", expire, "")
    assert found.endswith("has no deadline and stays for ever, though all that it was for is over")


def test_of_jobs_that_are_added_once_no_name_comes_again_however_long_it_takes(tmp_path: Path) -> None:
    """A queue that tries three times has many rounds without an add until it is empty."""
    assert not grown(tmp_path, "sidekiq_queue")


def test_a_contract_that_knows_no_more_clients_than_it_says_is_measured_with_those(tmp_path: Path) -> None:
    binding = store(tmp_path, "semaphore")
    contract = contract_of(binding)
    few = copy.copy(contract)
    few.calls = lambda client, seen: contract.calls((0, 1, 2)[client], seen)  # type: ignore[method-assign]
    found = measure(lambda: ContractRun(binding, few, KernelBackend(), 4), lambda: False)
    assert found.tested
    assert not found.keys
