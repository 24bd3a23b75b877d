"""Scripts, one a line in ``lua_scripts``, whose replies must be those of a real server, in RESP2 and in RESP3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Judge

FILES = sorted(Path(__file__).with_name("lua_scripts").glob("*.lua"))


def scripts(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines() if not line.startswith(b"-- ")]


def test_the_files_are_there() -> None:
    assert sum(len(scripts(path)) for path in FILES) > 1000


@pytest.mark.server
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_server_replies_the_same(judge: Judge, path: Path, resp: int) -> None:
    commands = [(b"EVAL", script, b"1", b"key1", b"arg1", b"arg2") for script in scripts(path)]
    found = judge.differences(commands, resp)
    assert not found, "\n".join(found)
