"""Each operator on a small script: exactly these mutants and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.mutants.operators import OPERATORS, chosen, mutants_of_script
from orderlab.sim.stores.binding.results import Script

CASES: dict[str, tuple[str, list[str]]] = {
    "relational": ("return 1 < 2", ["return 1 <= 2", "return 1 >= 2"]),
    "arithmetic": ("return a + b % c", ["return a - b % c", "return a + b * c"]),
    "constant": (
        "return 65535, 0xff, 1.5",
        ["return 65536, 0xff, 1.5", "return 65534, 0xff, 1.5", "return 65535, 256, 1.5", "return 65535, 254, 1.5"],
    ),
    "statement": ("local a = 1\na = 2\nif a then b() end", ["local a = 1\n\nif a then b() end", "local a = 1\na = 2\n",
                  "local a = 1\na = 2\nif a then  end"]),
    "default": ("local a = x or 1", ["local a = x"]),
    "command": ("redis.call('INCR', 'k', 'DECR')", ["redis.call('DECR', 'k', 'DECR')"]),
    "order": (
        "local call = redis.call\ncall('SET', 'k', 1)\ncall('DEL', 'l')\nx()",
        ["local call = redis.call\ncall('DEL', 'l')\ncall('SET', 'k', 1)\nx()"],
    ),
    "return": (
        "redis.call('SET', 'k', 1) redis.call('DEL', 'l') return 1",
        [
            "do return 1 end redis.call('SET', 'k', 1) redis.call('DEL', 'l') return 1",
            "redis.call('SET', 'k', 1) do return 1 end redis.call('DEL', 'l') return 1",
        ],
    ),
}  # fmt: skip


def made(source: str, *operators: str) -> list[str]:
    script = Script("s.lua", source.encode(), Path("s.lua"))
    return [mutant.source.decode() for mutant in mutants_of_script(script, operators)]


@pytest.mark.parametrize("operator", CASES)
def test_an_operator_makes_exactly_its_mutants(operator: str) -> None:
    source, mutants = CASES[operator]
    assert made(source, operator) == mutants


def test_options_are_dropped_with_their_values_and_changed() -> None:
    assert made("redis.call('SET', KEYS[1], v, 'EX', 10, 'KEEPTTL')", "option") == [
        "redis.call('SET', KEYS[1], v, 'KEEPTTL')",
        "redis.call('SET', KEYS[1], v, 'PX', 10, 'KEEPTTL')",
        "redis.call('SET', KEYS[1], v, 'EX', 10)",
    ]
    assert made('redis.call("ZRANGE", k, a, b, "REV", "WITHSCORES")', "option") == [
        'redis.call("ZRANGE", k, a, b, "WITHSCORES")',
        'redis.call("ZRANGE", k, a, b, "REV")',
    ]


def test_the_key_is_no_option_and_neither_is_an_option_of_another_command() -> None:
    assert made("redis.call('ZADD', 'NX', 1, 'a')", "option") == []
    assert made("redis.call('HSET', 'k', 'EX', '1')", "option") == []


def test_ranges_are_widened_narrowed_opened_and_closed() -> None:
    source = "for i = 1, #x do redis.call('ZRANGEBYSCORE', k, '(' .. a, '+inf') end"
    assert made(source, "range") == [
        source.replace("#x", "(#x) + 1"),
        source.replace("#x", "(#x) - 1"),
        source.replace("'('", "''"),
        source.replace("'+inf'", "'0'"),
    ]


def test_a_key_becomes_another_key_and_a_part_another_part() -> None:
    source = "local index, body = KEYS[1], KEYS[2]\nredis.call('HGET', body, 'p' .. ARGV[2])"
    assert made(source, "key") == [
        source.replace("'HGET', body", "'HGET', index"),
        source.replace("ARGV[2]", "ARGV[1]"),
    ]


def test_commands_are_found_behind_locals_and_functions_that_send_them() -> None:
    source = "local call = redis.call\nlocal function send(c, k) call(c, k) end\nsend('LPOP', 'k') other('LPOP', 'k')"
    assert made(source, "command") == [source.replace("send('LPOP'", "send('RPOP'")]


def test_what_does_not_compile_is_not_made() -> None:
    # Without the return of the function's middle, "return 1 x()" would not be Lua.
    assert made("return f(...)", "statement") == [""]
    assert made("for i = 1, 2 do break end", "statement") == ["", "for i = 1, 2 do  end"]


def test_a_mutant_is_made_once_however_many_operators_make_it() -> None:
    source = "return 1 + 1"
    every = made(source, *OPERATORS)
    assert len(every) == len(set(every))
    assert source not in every


def test_an_unknown_operator_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match='did you mean "constant"'):
        chosen(["constants"])
