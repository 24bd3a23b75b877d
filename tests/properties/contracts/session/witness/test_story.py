"""Stories of scripts that nobody trusts: what they say is shown, and does nothing to the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from orderlab.model.contracts.session.contract import SessionTerms
from orderlab.model.contracts.session.traces import Publication, Save, Trace
from orderlab.model.verdict import Outcome, Verdict
from orderlab.properties.contracts.session.validation.validation import SessionValidation
from orderlab.properties.harness.keyspace import shown_keyspace
from orderlab.properties.harness.recording import LuaLine, line_to_look_at
from orderlab.properties.validation.findings import Finding
from orderlab.properties.validation.verdicts import LawResult
from orderlab.properties.witness.witness import Explanation, Witness, story_lines
from orderlab.report.subjects import subject_of_store
from orderlab.report.terminal import print_subject
from orderlab.sim.redis.shard import Effect
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.records import Record

HOSTILE = "ERR [/x] [red]\x1b[31m\x9b\n\x07"
ESCAPED = r"ERR [/x] [red]\x1b[31m\x9b\n\x07"


def witness() -> Witness:
    trace = Trace((Save((Publication(1, b"m1"),)),), (b"c",))
    explanation = Explanation((HOSTILE,), ("nothing",), {}, {}, LuaLine(Path("save.lua"), 1, "", "-- \x1b[2J"), False)
    return Witness(Finding("no-loss", HOSTILE, trace, "a test"), explanation, "not confirmed", SessionTerms("session"))


def test_no_control_character_of_a_script_reaches_the_terminal() -> None:
    lines = [line for line, _ in story_lines(witness())]
    assert lines[0] == f"no-loss is violated: save.lua:1: {ESCAPED}"
    assert r"  save.lua:1: -- \x1b[2J" in lines
    assert all(line.isprintable() for line in lines)


def test_words_of_a_script_are_no_markup(tmp_path: Path) -> None:
    folder = tmp_path / "store[bold]"
    folder.mkdir()
    (folder / "store.toml").write_text(
        "[operations.save]\ncommand = ['SET', 'q', '1']\n[operations.fetch]\ncommand = ['LRANGE', 'q', '0', '-1']\n"
    )
    results = (LawResult(Verdict("no-loss", Outcome.VIOLATED, witness())),)
    console = Console(width=500, record=True, file=(tmp_path / "out").open("w"))
    found = SessionValidation(load_binding(folder), SessionTerms("session"), results, (), (), {}, 0)
    print_subject(console, subject_of_store(found), seed=0, effort="quick")
    text = console.export_text()
    assert ESCAPED + " [1 step" in text
    assert "store[bold]/store.toml;" in text


def test_bytes_of_calls_and_keys_are_shown_as_escapes() -> None:
    key = b"k\x1b\xff"
    call = Effect((b"HSET", key, b"\x00"), (key,), (key,), True, 1, 1, 3)
    found = line_to_look_at(
        [Record("save", b"c", frozenset((key,)), (call,))],
        load_binding(Path(__file__).parents[5] / "lua" / "session"),
        None,
    )
    assert found.call == r"HSET k\x1b\xff \x00"
    assert shown_keyspace({key: ("string", b"\x00", None)}) == {r"k\x1b\xff": r"string \x00"}
