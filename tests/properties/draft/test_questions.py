"""On a terminal a draft asks for what it does not know; without a contract it writes the class of one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.draft.facts import facts_of
from orderlab.properties.draft.guess import guessed
from orderlab.properties.draft.questions import answered, asked_on_terminal
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.results import Script
from tests.in_process import orderlab

ROOM = (
    "if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end\n"
    "return redis.call('SADD', KEYS[1], ARGV[2])"
)
GRAB = "return redis.call('SET', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) and 1 or 0"


def written(folder: Path, **scripts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / f"{name}.lua").write_text(f"{text}\n")
    return folder


def test_gaps_are_asked_for_on_a_terminal(tmp_path: Path) -> None:
    """The contract, the operation of a script, and what its arguments mean: then nothing is left to fill in."""
    folder = written(tmp_path / "store", thing=GRAB)
    ours, theirs = pty.openpty()
    program = "import sys; from orderlab.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "init", str(folder)], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, b"lock\nacq\nttl_sm\nttl\n\n")
    told = b""
    while chunk := read(ours):
        told += chunk
    os.close(ours)
    assert process.wait(60) == 0, told.decode()
    assert b"What are these scripts (thing.lua)?" in told
    assert b'ttl_sm is none of them; did you mean "ttl_ms"?' in told
    content = tomllib.loads((folder / "store.toml").read_text())
    assert content["specification"] == "lock"
    assert content["operations"]["acquire"]["args"][0] == "<ttl_ms>"
    assert "TODO" in content["operations"]["acquire"]["args"][1], "Enter leaves a gap"


def read(end: int) -> bytes:
    try:
        return os.read(end, 4096)
    except OSError:  # the other end is closed
        return b""


def test_nothing_is_asked_in_a_pipe(tmp_path: Path) -> None:
    done = orderlab("init", written(tmp_path / "store", grab=GRAB))
    assert (done.returncode, done.stderr) == (0, "")
    assert "What are these scripts" not in done.stdout


def test_an_answer_may_be_a_text_that_is_always_the_same() -> None:
    facts = [facts_of(Script("acquire.lua", GRAB.encode(), Path("acquire.lua")))]
    asked: list[str] = []

    def ask(question: str, choices: Sequence[str]) -> str:
        asked.append(question)
        return "=5000" if "ARGV[1]" in question else "token"

    guess = answered(facts, guessed(facts, "lock"), ask)
    assert guess.operations == {"acquire.lua": "acquire"}
    first, second = facts[0].arguments
    assert (first.spelled, first.is_constant, second.name) == ("5000", True, "token")
    assert len(asked) == 2


def test_the_end_of_the_input_leaves_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert asked_on_terminal("What?", ["lock", "feed"]) == ""


def test_where_no_contract_fits_a_class_is_written_that_loads_and_names_its_next_gap(tmp_path: Path) -> None:
    folder = written(tmp_path / "store", seat=ROOM)
    assert orderlab("init", folder).returncode == 0
    assert [*load_binding(folder, trust_adapter=True).operations] == ["seat"]
    told = orderlab("validate", folder, "--effort", "0.01", "--backend", "kernel")
    assert told.returncode == 3
    assert f"next: {folder / 'contract.py'}:15: the state of an empty store" in told.stdout
    text = (folder / "contract.py").read_text()
    some = text.replace("# TODO: the state", "# the state")
    (folder / "contract.py").write_text(some)
    told = orderlab("validate", folder, "--effort", "0.01", "--backend", "kernel")
    assert "contract.py:19: each reply that seat(arg1, arg2) may give" in " ".join(told.stdout.split())


def test_a_class_that_is_written_is_judged(tmp_path: Path) -> None:
    folder = written(tmp_path / "store", seat=ROOM)
    assert orderlab("init", folder).returncode == 0
    file = folder / "contract.py"
    raised = 'raise NotImplementedError("write what seat may reply")'
    allowed = (
        "full = len(state) >= call['arg1']\n            new = call['arg2'] not in state\n"
        "            yield (0, state) if full or not new else (1, tuple(sorted((*state, call['arg2']))))"
    )
    text = "".join(
        line for line in file.read_text().splitlines(keepends=True) if "# TODO" not in line or "return" in line
    )
    file.write_text(text.replace("# TODO: ", "# ").replace(raised, allowed))
    done = orderlab(
        "validate", folder, "--trust-adapter", "--effort", "0.02", "--backend", "kernel", "--law", "specification"
    )
    assert "specification holds" in done.stdout, done.stdout + done.stderr


def test_a_class_that_is_there_stays(tmp_path: Path) -> None:
    folder = written(tmp_path / "store", seat=ROOM)
    (folder / "contract.py").write_text("mine = 1\n")
    done = orderlab("init", folder)
    assert done.returncode == 2
    assert "--force replaces it" in done.stderr
    assert not (folder / "store.toml").exists()
    with pytest.raises(InputError):
        load_binding(folder)
