"""What a store with a contract of its owner's leaves behind, and what makes its calls more and more: a flaw beside its
nearest neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.base import size_of
from orderlab.model.verdict import Outcome
from orderlab.properties.engine import growth
from orderlab.properties.engine.growth import Growth, measure
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.validation import contract_of, validate_contract
from orderlab.properties.validation.verdicts import LawResult
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.test_other_styles import store

LUA = Path(__file__).parents[4] / "lua"
RETURN = "return token\n"
CLOCK = "local time = redis.call('TIME')\nlocal now = time[1] * 1000 + math.floor(time[2] / 1000)\n"


def lock(written: str, contract: str = "") -> Binding:
    """The bundled lock, which also does ``written`` when it grants a lease."""
    binding = load_binding(LUA / "lock", trust_adapter=True)
    source = next(one.source for one in binding.scripts if one.name == "acquire.lua").decode()
    assert source.endswith(RETURN)
    return binding.with_sources({"acquire.lua": (source.removesuffix(RETURN) + written + RETURN).encode()})


def judged(binding: Binding) -> dict[str, LawResult]:
    return {one.law: one for one in validate_contract(binding, WorkOrder(0.02, 0, ["no-residue", "bounded"])).results}


def grown(binding: Binding) -> Growth:
    """What many rounds of what clients do leave behind, and nothing but that."""
    contract = contract_of(binding)
    return measure(lambda: ContractRun(binding, contract, KernelBackend(), 3), lambda: False)


@pytest.mark.parametrize(
    "written",
    [
        "redis.call('RPUSH', '{lock}:history', token)\n",
        "redis.call('HSET', '{lock}:granted', token, 1)\n",
        "redis.call('SET', '{lock}:granted:' .. token, 1)\n",
        "redis.call('APPEND', '{lock}:history', '.')\n",
        "redis.call('APPEND', '{lock}:history', string.format('%05d', token))\n",
        "redis.call('ZADD', '{lock}:granted', token, 'a lease of ' .. token)\nredis.call('EXPIRE', "
        "'{lock}:granted:x', 9)\n",
        "redis.call('XADD', '{lock}:events', '*', 'token', token)\n",
        "redis.call('XADD', '{lock}:events', 'MAXLEN', '~', 1000, 'LIMIT', 1, '*', 'token', token)\n",
        "redis.call('XADD', '{lock}:events', 'MAXLEN', 1000 + token, '*', 'token', token)\n",
        "redis.call('XADD', '{lock}:events', '*', 'maxlen', '5')\n",
        "redis.call('XADD', '{lock}:events:' .. token, 'MAXLEN', 1000, '*', 'token', token)\n",
        "redis.call('RPUSH', '{lock}:history', token)\nif token < 9 then redis.call('LTRIM', '{lock}:history', "
        "-5000, -1) end\n",
        f"{CLOCK}redis.call('ZADD', '{{lock}}:granted', '+inf', token)\nredis.call('ZREMRANGEBYSCORE', "
        f"'{{lock}}:granted', '-inf', now - 86400000)\n",
    ],
    ids=[
        "list",
        "hash",
        "keys",
        "text",
        "digits",
        "sorted set",
        "stream",
        "limit",
        "more and more",
        "field",
        "streams",
        "trimmed at first",
        "for ever",
    ],
)
def test_a_lock_that_keeps_every_token_leaves_something_behind(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is found after few rounds and lasts is found after many.
    monkeypatch.setattr(growth, "ROUNDS", growth.ROUNDS[:1])
    found = grown(lock(written))
    assert "after 28 rounds" in found.keys
    assert "{lock}:" in found.keys
    assert not found.calls


def test_what_is_left_behind_has_a_witness_that_is_explained() -> None:
    found = judged(lock("redis.call('RPUSH', '{lock}:history', token)\n"))
    assert found["no-residue"].outcome is Outcome.VIOLATED
    assert found["bounded"].outcome is Outcome.HOLDS
    (witness,) = found["no-residue"].witnesses
    assert "after 144 rounds" in witness.finding.text
    assert "{lock}:" in witness.finding.text
    assert "redis.call(" in witness.explanation.lua.source
    explained = witness.explanation
    assert len(explained.told) == len(explained.states) == len(explained.keyspaces) == len(witness.finding.trace.steps)


@pytest.mark.parametrize(
    "written",
    [
        "redis.call('RPUSH', '{lock}:history', token)\nredis.call('LTRIM', '{lock}:history', -10, -1)\n",
        "redis.call('RPUSH', '{lock}:history', token)\nredis.call('LTRIM', '{lock}:history', -60, -1)\n",
        "redis.call('SET', '{lock}:granted:' .. token, 1, 'PX', 60000)\n",
        "redis.call('HSET', '{lock}:granted', 'last', token, 'sum', token * 7)\n",
        "",
        "redis.call('XADD', '{lock}:events', 'MAXLEN', '~', 10000, '*', 'token', token)\n",
        "redis.call('XADD', '{lock}:events', 'MAXLEN', 10000, '*', 'token', token)\n",
        "redis.call('XADD', '{lock}:events', '*', 'token', token)\nredis.call('XTRIM', '{lock}:events', 'MAXLEN', "
        "'=', 10000)\n",
        "redis.call('XADD', '{lock}:events', 'NOMKSTREAM', 'MAXLEN', 5, '*', 'token', token)\n",
        f"{CLOCK}redis.call('XADD', '{{lock}}:events', 'MINID', '~', now - 86400000, '*', 'token', token)\n",
        "redis.call('LPUSH', '{lock}:history', token)\nredis.call('LTRIM', '{lock}:history', 0, 4999)\n",
        "redis.call('ZADD', '{lock}:granted', token, token)\nredis.call('ZREMRANGEBYRANK', '{lock}:granted', 0, "
        "-5001)\n",
        f"{CLOCK}redis.call('ZADD', '{{lock}}:granted', now, token)\nredis.call('ZREMRANGEBYSCORE', "
        f"'{{lock}}:granted', '-inf', now - 86400000)\n",
    ],
    ids=[
        "the last ten",
        "the last sixty",
        "for a minute",
        "the last",
        "nothing",
        "stream",
        "exact stream",
        "trimmed stream",
        "no stream",
        "for a day",
        "the last 5,000",
        "by rank",
        "a day by score",
    ],
)
def test_a_lock_that_keeps_some_leaves_nothing_behind(written: str) -> None:
    found = grown(lock(written))
    assert (found.keys, found.calls, found.why_not) == ("", "", "")
    assert found.tested


def test_a_lock_that_leaves_nothing_behind_holds() -> None:
    found = judged(lock(""))
    assert {law: result.outcome for law, result in found.items()} == dict.fromkeys(found, Outcome.HOLDS)


def test_a_lock_that_counts_up_to_its_token_makes_more_and_more_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "ROUNDS", growth.ROUNDS[:1])
    found = judged(lock("for one = 1, token do redis.call('EXISTS', KEYS[1]) end\n"))
    assert found["no-residue"].outcome is Outcome.HOLDS
    (witness,) = found["bounded"].witnesses
    assert "acquire makes" in witness.finding.text
    assert "Redis calls after 28 rounds" in witness.finding.text
    assert not grown(lock("for one = 1, 50 do redis.call('EXISTS', KEYS[1]) end\n")).calls


def test_of_a_store_whose_contract_grows_nothing_is_said(tmp_path: Path) -> None:
    """A journal: every line stays, in the contract as in the store; one whose contract says that a number stands for
    them."""
    (tmp_path / "write.lua").write_text("return redis.call('RPUSH', KEYS[1], ARGV[1])\n")
    (tmp_path / "store.toml").write_text(
        'specification = "journal.py:Journal"\n[keys]\nlines = "{j}:lines"\n'
        '[operations.write]\nscript = "write.lua"\nkeys = ["lines"]\nargs = ["<line>"]\n'
    )
    head = (
        "from orderlab.contract import Call, Contract\n\n\nclass Journal(Contract):\n    operations = {'write': "
        "('line',)}\n"
    )
    calls = "    def calls(self, client, seen):\n        yield Call.of('write', line='x')\n"
    (tmp_path / "journal.py").write_text(
        f"{head}    def initial(self):\n        return ()\n"
        f"    def outcomes(self, state, call, now_ms):\n        yield len(state) + 1, (*state, call['line'])\n{calls}"
    )
    found = judged(load_binding(tmp_path, trust_adapter=True))["no-residue"]
    assert (found.outcome, found.not_applicable) == (Outcome.UNKNOWN, "the contract's state grows as well")
    number = (
        f"{head}    def initial(self):\n        return 0\n"
        f"    def outcomes(self, state, call, now_ms):\n        yield state + 1, state + 1\n{calls}"
    )
    (tmp_path / "journal.py").write_text(number)
    assert judged(load_binding(tmp_path, trust_adapter=True))["no-residue"].outcome is Outcome.VIOLATED
    (tmp_path / "journal.py").write_text(f"{number}    def size(self, state):\n        return state\n")
    assert judged(load_binding(tmp_path, trust_adapter=True))["no-residue"].not_applicable


def test_nothing_is_measured_once_another_law_is_broken() -> None:
    binding = lock("if token == 3 then return 0 end\n")
    found = measure(lambda: ContractRun(binding, contract_of(binding), KernelBackend(), 3), lambda: False)
    assert (found.keys, found.why_not) == ("", "another law is broken on the way")


def test_the_size_of_a_state_is_how_many_values_it_is_made_of() -> None:
    assert [size_of(one) for one in (0, (), (1, 2), ((1, "a"), frozenset({2})), {"a": (1, 2)})] == [1, 0, 2, 3, 3]


def test_a_law_that_is_broken_while_growth_is_measured_is_told() -> None:
    again = "token = (token - 1) % 64 + 1\nredis.call('SET', KEYS[1], token, 'PX', ARGV[1])\n"
    (found,) = validate_contract(lock(again), WorkOrder(0.01, 0, ["fencing"])).results
    assert found.outcome is Outcome.VIOLATED
    assert found.witnesses[0].finding.analysis == "what grows"


@pytest.mark.parametrize(("slip", "outcome"), [("numbers compared as texts", Outcome.VIOLATED), ("", Outcome.HOLDS)])
def test_what_breaks_after_clients_have_come_and_gone_is_taken_again(
    tmp_path: Path, slip: str, outcome: Outcome
) -> None:
    """The tenth number is the first that is wrong as a text; by then two readers have left, whose calls stand in the
    run under numbers of their own."""
    binding = store(tmp_path, "topic_readers", slip)
    found = validate_contract(binding, WorkOrder(0.02, 0, ["specification"])).results[0]
    assert found.outcome is outcome
    if slip:
        assert "commit(reader='r0', id=10) replied 0" in found.witnesses[0].headline
