"""`orderlab cost` on bundled stores, on a script that is dearer than it looks, and on its repair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orderlab.sim.redis.backends import KernelBackend
from tests.in_process import orderlab

CONTRACT = """
from orderlab.contract import Call, Contract

class Bag(Contract):
    operations = {"put": ("value",), "sum": ()}

    def initial(self):
        return ()

    def outcomes(self, state, call, now_ms):
        yield (len(state), state) if call.name == "sum" else (len(state) + 1, (*state, call["value"]))

    def calls(self, client, seen):
        yield Call.of("put", value=f"v{client}.{len(seen)}")
        yield Call.of("sum")
"""
BINDING = """
specification = "bag.py:Bag"
[keys]
bag = "bag"
[operations.put]
script = "put.lua"
keys = ["bag"]
args = ["<value>"]
[operations.sum]
script = "sum.lua"
keys = ["bag"]
"""
PUT = "return redis.call('RPUSH', KEYS[1], ARGV[1])"
WALKED = """local all = redis.call('LRANGE', KEYS[1], 0, -1)
local n = 0
for i = 1, #all do for j = 1, #all do if i == j then n = n + 1 end end end
return n"""
ASKED = "return redis.call('LLEN', KEYS[1])"


def bag(folder: Path, total: str) -> Path:
    folder.mkdir()
    for name, text in (("bag.py", CONTRACT), ("store.toml", BINDING), ("put.lua", PUT), ("sum.lua", total)):
        (folder / name).write_text(text)
    return folder


def cost(*arguments: object) -> tuple[int, dict[str, Any]]:
    ended = orderlab("cost", *map(str, arguments), "--trust-adapter", "--json")
    return ended.returncode, json.loads(ended.stdout)


def forms(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["operation"]: one for one in told["operations"] if one["axis"] == "length"}


def test_a_loop_within_a_loop_is_quadratic_and_its_repair_constant(tmp_path: Path) -> None:
    code, told = cost(bag(tmp_path / "walked", WALKED))
    found = forms(told)
    assert found["sum"]["instructions"]["form"] == "n²", "the work is all Lua's: one command"
    assert found["sum"]["commands"]["form"] == ""
    assert found["put"]["blocked_us"]["form"] == ""
    assert (code, told["over"]) == (0, []), "0.6 s at 10,000 is within lua-time-limit"
    assert cost(tmp_path / "walked", "--budget-ms", 100)[0] == 1
    code, told = cost(bag(tmp_path / "asked", ASKED), "--budget-ms", 100)
    assert (code, forms(told)["sum"]["blocked_us"]["form"]) == (0, "")


def test_what_a_change_makes_dearer_is_told(tmp_path: Path) -> None:
    old, new = bag(tmp_path / "old", ASKED), bag(tmp_path / "new", WALKED)
    code, told = cost(new, "--base", old)
    assert code == 1
    assert {(one["situation"], one["what"], one["grows"]) for one in told["dearer"]} >= {("sum", "blocked_us", True)}
    code, told = cost(old, "--base", new)
    assert (code, told["dearer"]) == (0, [])


def test_a_lock_is_constant_and_a_page_has_its_charts(tmp_path: Path) -> None:
    page = tmp_path / "cost.html"
    ended = orderlab("cost", "lua/lock", "--trust-adapter", "--report", f"html={page}")
    assert ended.returncode == 0
    assert "every call within the budget" in ended.stdout
    text = page.read_text()
    for what in ("blocks the node", "commands", "Lua instructions"):
        assert text.count(f": {what}") >= 3
    assert text.count(" data-zoom=") == 9


def test_a_session_store_tells_its_memory_and_its_pages() -> None:
    code, told = cost("lua/session", "--length", 1000)
    found = {(one["axis"], one["situation"]): one for one in told["operations"]}
    assert code == 0
    assert found["length", "acknowledge"]["blocked_us"]["form"] == ""
    assert found["length", "fetch of everything"]["blocked_us"]["form"] == "n"
    assert found["batch", "save"]["instructions"]["form"] == "n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"local x = 0 for i = 1, 1000 do x = x + i end return x", 2_007),
        (b"for i = 1, 1000 do redis.call('SET', KEYS[1], i) end return 1", 8_007),
        (b"local x = 0 for i = 1, 100000 do x = x + i end return x", 200_007),
    ],
)
def test_instructions_are_the_scripts_own(text: bytes, expected: int) -> None:
    backend = KernelBackend()
    with backend.measuring() as work:
        backend.execute(b"EVAL", text, b"1", b"k")
        assert work()[0] == pytest.approx(expected, rel=0.08)
    with backend.measuring() as work:
        assert work()[0] == 0


def test_a_store_without_scripts_is_refused() -> None:
    ended = orderlab("cost", "postgres")
    assert ended.returncode == 2
    assert "no scripts" in ended.stderr


@pytest.mark.server
def test_memory_of_a_thing_is_what_a_real_server_says() -> None:
    """Times are the machine's; they are told, and not held to anything here."""
    ended = orderlab("cost", "lua/limiter", "--trust-adapter", "--server", "auto", "--json")
    checked = json.loads(ended.stdout)["server"]
    assert checked["memory_at_length"] == pytest.approx(1, abs=0.1)
    assert checked["forms"]
