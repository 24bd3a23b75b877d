"""Scaling a store's packet identifiers down: literals in code change, nothing else does, and the change is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.lua_text import RewrittenLine, check_syntax, scale, scale_source, tokens
from orderlab.sim.stores.binding.results import Script

LUA = Path(__file__).parents[3] / "lua"
SOURCES = sorted(LUA.rglob("*.lua"))

CASES = [
    (b"x = id % 65535 + 1", b"x = id % 3 + 1"),
    (b"if id > 65534 then", b"if id > 2 then"),
    (b"x = id % 65536", b"x = id % 4"),
    (b"x = 0xFFFF", b"x = 3"),
    (b"x = 65535.0 + 6.5535e4", b"x = 3 + 3"),
    (b"x = '65535' -- 65535\ny = 65535", b"x = '65535' -- 65535\ny = 3"),
    (b'x = "a\\"65535" .. [[65535]] .. [==[ ]] 65535]==]', b'x = "a\\"65535" .. [[65535]] .. [==[ ]] 65535]==]'),
    (b"--[[ 65535\n65535 ]] x = 65535", b"--[[ 65535\n65535 ]] x = 3"),
    (b"--[==[ ]] 65535 ]==] x=65535", b"--[==[ ]] 65535 ]==] x=3"),
    (b"a65535 = b[65535]", b"a65535 = b[3]"),
    (b"x = 165535 + 655350 + 65535000", b"x = 165535 + 655350 + 65535000"),
    (b"#!lua name=65535\nreturn 65535", b"#!lua name=65535\nreturn 3"),
    (b"x = 'open 65535", b"x = 'open 65535"),
]


@pytest.mark.parametrize(("before", "after"), CASES, ids=[before.decode() for before, _ in CASES])
def test_only_number_literals_are_scaled(before: bytes, after: bytes) -> None:
    assert scale_source(before, 3) == after


@pytest.mark.parametrize(
    ("before", "full", "after"),
    [
        (b"x = id % 65534 + 1 y = 65535 z = 65533 w = 65536", 65534, b"x = id % 3 + 1 y = 4 z = 2 w = 65536"),
        (b"x = id % 1000 + 1", 1000, b"x = id % 3 + 1"),
        (b"for i = 1, 10 do x[i] = 9 end", 10, b"for i = 1, 10 do x[i] = 9 end"),
    ],
)
def test_the_literals_of_another_modulus(before: bytes, full: int, after: bytes) -> None:
    assert scale_source(before, 3, full) == after


@given(st.binary())
def test_every_byte_is_in_one_token(source: bytes) -> None:
    position = 0
    for token in tokens(source):
        assert token.start == position
        assert token.end > token.start
        assert token.line == 1 + source.count(b"\n", 0, position)
        position = token.end
    assert position == len(source)


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(LUA)) for path in SOURCES])
def test_the_bundled_scripts_compile_at_any_scale(path: Path) -> None:
    source = path.read_bytes()
    assert scale_source(source, 65535) == source
    check_syntax(Script(path.name, scale_source(source, 3), path))


def test_what_was_rewritten_is_listed() -> None:
    scaled, lines = scale(load_binding(LUA / "specimens" / "published"), 5)
    assert scaled.modulus == 5
    assert lines == [
        RewrittenLine("save.lua", 19, "  packet_id = packet_id % 65535 + 1", "  packet_id = packet_id % 5 + 1")
    ]
    again, lines = scale(load_binding(LUA / "session"), 65535)
    assert lines == []
    assert again.scripts == load_binding(LUA / "session").scripts


def test_arguments_of_the_binding_are_scaled_too(tmp_path: Path) -> None:
    (tmp_path / "save.lua").write_text("return 65535")
    (tmp_path / "store.toml").write_text(
        "[operations.save]\nscript = 'save.lua'\nargs = ['65535', 'id 65535', '<modulus>']\n"
        "[operations.fetch]\ncommand = ['LRANGE', 'q', '0', '65534']\n"
    )
    scaled, lines = scale(load_binding(tmp_path), 3)
    assert scaled.call("save").args == (b"3", b"id 65535", b"3")  # type: ignore[union-attr]
    assert scaled.call("fetch").argv == (b"LRANGE", b"q", b"0", b"2")
    assert RewrittenLine("store.toml", 0, "operations.save.args[0] = 65535", "operations.save.args[0] = 3") in lines
    follows = "operations.save.args[2] = <modulus>"
    assert RewrittenLine("store.toml", 0, f"{follows}: 65535", f"{follows}: 3") in lines
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("template", "follows"),
    [
        ("<modulus>", True),
        ("<limit|modulo:modulus >", True),
        ("<limit|or:modulus|json>", True),
        ("modulus", False),
        ("<limit> of the modulus", False),
        ("modulus: <limit>", False),
    ],
)
def test_a_template_with_the_modulus_is_listed(template: str, follows: bool, tmp_path: Path) -> None:
    (tmp_path / "store.toml").write_text(
        f"[operations.save]\ncommand = ['SET', 'q', '{template}']\n[operations.fetch]\ncommand = ['LRANGE', 'q', "
        "'0', '-1']\n"
    )
    assert bool(scale(load_binding(tmp_path), 3)[1]) == follows
