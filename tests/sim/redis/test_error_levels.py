"""The place that ``error`` puts in front of its message, for each level and each way to call it, against a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Judge

LEVELS = [
    "",
    ",nil",
    ",0",
    ",1",
    ",2",
    ",3",
    ",4",
    ",5",
    ",-1",
    ",1.5",
    ",'2'",
    ",'x'",
    ",true",
    ",2.9",
    ",100",
    ",1e300",
]
WAYS = [
    "pcall(error, 'x'LEVEL)",
    "pcall(pcall, error, 'x'LEVEL)",
    "pcall(error, 5LEVEL)",
    "xpcall(function() error('x'LEVEL) end, function(m) return m end)",
    "pcall(function() error('x'LEVEL) end)",
    "pcall(function(a) error('x'LEVEL) end, 1)",
    "pcall(function()\n local r = calls(function()\n error('x'LEVEL) end)\n return r end)",
    "pcall(string.gsub, 'a', 'a', function() error('x'LEVEL) end)",
    "pcall(function()\n return (string.gsub('a', '.', function()\n error('x'LEVEL)\n end)) end)",
    "pcall(function()\n table.sort({2, 1}, function()\n error('x'LEVEL)\n end) end)",
    "coroutine.resume(coroutine.create(function(h)\n h()\n end), function()\n error('x'LEVEL) end)",
    "pcall(function() local w = coroutine.wrap(function() error('x'LEVEL) end)\n w() end)",
    "pcall(function() return setmetatable({}, {__index = function() error('x'LEVEL) end}).a end)",
    "pcall(function() return tostring(setmetatable({}, {__tostring = function() error('x'LEVEL) end})) end)",
    "pcall(function() local function t() return error('x'LEVEL) end return t() end)",
    "pcall(function() local found = loadstring(\"error('x'LEVEL)\")() return found end)",
]
SCRIPT = """local function calls(f) f() return 1 end
local r = {WAY}
for i = 1, 4 do r[i] = type(r[i]) == 'table' and 'table' or tostring(r[i]) end
return r"""


@pytest.mark.server
def test_the_place_of_an_error_is_that_of_its_level(judge: Judge) -> None:
    scripts = [SCRIPT.replace("WAY", way).replace("LEVEL", level) for level in LEVELS for way in WAYS]
    found = judge.differences([(b"EVAL", script.encode(), b"0") for script in scripts])
    assert not found, "\n".join(found)
