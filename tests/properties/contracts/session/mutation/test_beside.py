"""What no client can tell apart is not told apart, whatever the keys hold; what a client can tell is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.properties.contracts.session.mutation.client_difference import difference_to_clients
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path(__file__).parents[5] / "lua"


def difference(script: str, find: bytes, replace: bytes) -> str:
    binding = load_binding(LUA / "session")
    (source,) = (one.source for one in binding.scripts if one.name == script)
    assert source.count(find) == 1
    return difference_to_clients(binding, binding.with_sources({script: source.replace(find, replace)}), 3, 40, 5)


@pytest.mark.parametrize(
    ("script", "find", "replace"),
    [
        ("save.lua", b"if deadline < latest then", b"if deadline <= latest then"),
        ("save.lua", b"redis.error_reply('ERR the session is damaged", b"redis.error_reply('ERR it is damaged"),
        ("open.lua", b"call('HSET', body, 'm',", b"call('HSET', body, 'unused', 1, 'm',"),
    ],
)
def test_other_keys_alone_are_not_a_difference(script: str, find: bytes, replace: bytes) -> None:
    assert difference(script, find, replace) == ""


def test_a_reply_that_differs_is() -> None:
    assert difference("acknowledge.lua", b"return live and 1 or 0", b"return 2")


def test_keys_that_lead_to_another_reply_later_are() -> None:
    found = difference("release.lua", b"call('HSET', body, id, 'R' .. deadline)", b"call('HSET', body, id, record)")
    assert found.removeprefix("afterwards ").startswith("fetch ")


def test_an_error_of_another_code_is() -> None:
    found = difference("save.lua", b"redis.error_reply('ERR limit", b"redis.error_reply('LIMIT limit")
    assert "replies error LIMIT; the old one error ERR" in found


def test_a_store_of_several_calls_is_left_to_the_comparison_of_keys() -> None:
    binding = load_binding(LUA / "specimens" / "counter-outside-the-script")
    assert "several calls" in difference_to_clients(binding, binding, 3)
