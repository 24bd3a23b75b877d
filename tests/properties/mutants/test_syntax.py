"""Parsing: every byte keeps its place, whatever the source; what is not Lua is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.mutants.operators import mutants_of_script
from orderlab.properties.syntax import Chunk
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.results import Script

ROOT = Path(__file__).parents[3]
HOSTILE = {
    "shebang": b"#!lua flags=no-writes\nreturn 1 + 1\n",
    "crlf": b"local a = 1\r\nif a > 0 then\r\n  a = a - 1\r\nend\r\nreturn a\r\n",
    "bytes that are no UTF-8": b"local s = '\xff\xfe(' -- \xe9\nreturn s .. '\x80', 2\n",
    "long strings and comments": b"--[==[ 1 + 1 ]] ]==] local s = [=[ return 3 < 4 ]]]=] return #s + 5 --[[ 6 ]]",
    "quotes in quotes": b"return 'it\\'s', \"a\\\"b\", 'x\\'y', 7",
    "calls without parentheses": b"redis.call'TIME' local t = f{1, 2} return t",
    "semicolons": b";local a = 1; a = a + 1; return a;",
    "methods": b"local s = ('x'):rep(3) return s:len() + 1",
    "empty": b"",
    "only a comment": b"-- nothing",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_mutant_is_the_script_but_for_one_place(name: str) -> None:
    source = HOSTILE[name]
    chunk = Chunk.parse(source)
    if name != "shebang":  # whose first line is blanked out
        # The root begins at the first token; what is around it is blank.
        assert source[: chunk.root.start_byte].strip() == b""
    for mutant in mutants_of_script(Script("s.lua", source, Path("s.lua"))):
        assert mutant.source[: mutant.start] == source[: mutant.start]
        assert mutant.source[mutant.start :].startswith(mutant.after)
        assert mutant.source[mutant.start + len(mutant.after) :] == source[mutant.end :]
        assert mutant.before == source[mutant.start : mutant.end]


def test_code_in_comments_and_strings_is_left_alone() -> None:
    script = Script("s.lua", HOSTILE["long strings and comments"], Path("s.lua"))
    assert {mutant.before for mutant in mutants_of_script(script, ["constant", "relational"])} == {b"5"}


def test_every_script_of_the_suite_is_parsed() -> None:
    for store in sorted((ROOT / "lua").rglob("store.toml")):
        for script in load_binding(store, trust_adapter=True).scripts:
            Chunk.parse(script.source, script.name)


def test_a_source_that_is_not_lua_is_refused_with_its_line() -> None:
    with pytest.raises(InputError, match=r"^x\.lua:2: cannot be parsed"):
        Chunk.parse(b"local a = 1\nlocal = = 2\n", "x.lua")


def test_the_difference_shows_whole_lines() -> None:
    source = b"local a = 1\nlocal b = a + 2\nreturn b\n"
    (mutant,) = mutants_of_script(Script("s.lua", source, Path("s.lua")), ["arithmetic"])
    assert mutant.difference == ("local b = a + 2", "local b = a - 2")
    assert (mutant.line, mutant.place) == (2, "s.lua:2")
