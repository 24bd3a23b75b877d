"""The worked example of notes/bindings.md does what the note says, word for word, and so do the steps of
notes/binding-session.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.contracts.session.traces import DrainQueue, Publication, Save
from orderlab.model.errors import InputError
from orderlab.properties.contracts.session.subject import Subject
from orderlab.sim.stores.binding import Assigned, FetchedMessage, Message, Saved, load_binding
from tests.in_process import orderlab

NOTES = Path(__file__).parents[2] / "notes"


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of what a page shows."""
    return re.findall(r"```(\w*)\n(.*?)```", (NOTES / page).read_text(), re.DOTALL)


BLOCKS = blocks("bindings.md")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The store of the note."""
    for kind, text in BLOCKS:
        name = re.match(r"-- (\S+\.lua)", text)
        if kind == "lua" and name:
            (tmp_path / name[1]).write_text(text)
    (tmp_path / "store.toml").write_text(next(text for kind, text in BLOCKS if kind == "toml"))
    return tmp_path


def test_the_store_of_the_note_is_judged_from_the_command_line(folder: Path) -> None:
    """Save and fetch are all it has: what needs an acknowledgement is not applicable, and everything else has its
    verdict."""
    asked = [arg for law in ("expiry", "all-or-nothing", "legal-trim", "retransmission") for arg in ("--law", law)]
    done = orderlab("validate", "--json", "--effort", "0.1", "--backend", "kernel", *asked, folder)
    assert (done.returncode, done.stderr) == (1, "")
    told = {law["law"]: law for law in json.loads(done.stdout)["laws"]}
    assert {name for name, law in told.items() if law["outcome"] == "violated"} >= {
        "expiry",
        "all-or-nothing",
        "legal-trim",
    }
    assert told["retransmission"]["not_applicable"] == "the store has no release"
    assert told["retransmission"]["outcome"] == "unknown"


@pytest.mark.exhaustive
def test_the_store_of_the_note_is_judged_by_every_law(folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "orderlab.cli",
        "validate",
        "--json",
        "--effort",
        "quick",
        "--backend",
        "kernel",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    fallen = {law["law"] for law in json.loads(done.stdout)["laws"] if law["outcome"] == "violated"}
    assert fallen >= {
        "packet-id",
        "legal-trim",
        "expiry",
        "no-residue",
        "all-or-nothing",
        "one-slot",
        "no-phantom",
        "drain",
    }


@pytest.mark.server
def test_the_store_of_the_note_works(folder: Path, open_store: Callable[..., Any]) -> None:
    store = open_store(folder)
    messages = [Message(b"a\xff", b"t", 1, 5000), Message(b"b", b"u", 2)]
    saved = store.perform("save", messages=messages)
    assert saved == Saved((Assigned(1), Assigned(2)), first=1, last=2)
    assert store.perform("fetch").messages == (
        FetchedMessage(b"a\xff", 1, remaining_ms=5000, topic=b"t", qos=1),
        FetchedMessage(b"b", 2, topic=b"u", qos=2),
    )


def test_the_mistake_of_the_note_is_told_as_it_says(folder: Path) -> None:
    file = folder / "store.toml"
    file.write_text(file.read_text().replace('args = ["<messages>"]', 'args = ["<mesages>"]'))
    with pytest.raises(InputError) as raised:
        load_binding(folder)
    said = next(text for kind, text in BLOCKS if not kind).strip().replace("FOLDER", str(folder))
    assert str(raised.value) == said


def test_the_steps_of_the_note_are_a_binding(folder: Path) -> None:
    steps = next(text for kind, text in blocks("binding-session.md") if kind == "toml" and "steps" in text)
    (folder / "save.lua").write_text("return 1")
    whole = (folder / "store.toml").read_text()
    without = whole[: whole.index("[operations.save]")] + whole[whole.index("[operations.fetch]") :]
    (folder / "store.toml").write_text(without + steps)
    assert len(load_binding(folder).operation("save").steps) == 3


def test_a_queue_that_never_drains_is_asked_a_few_times_and_given_up(folder: Path) -> None:
    """A page that comes again as it was, with nothing to acknowledge it by, is the same the next thousand times."""
    run = Subject(load_binding(folder)).run((b"client-one",))
    messages = tuple(Publication(label, b"<%d>" % label, b"t", 1, None) for label in range(1, 301))
    assert not run.perform(Save(messages, limit=65_535)).discrepancies
    told = [one.text for one in run.perform(DrainQueue(count=10)).discrepancies if one.law == "drain"]
    assert told == ["300 messages wait after 4 fetches, each acknowledged"]
