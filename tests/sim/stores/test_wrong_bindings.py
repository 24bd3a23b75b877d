"""Bindings with one mistake each, made of sound ones: every mistake is one line that names the file, the key, what may
stand there, and the nearest spelling."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from orderlab.model.errors import InputError
from orderlab.sim.stores.binding import load_binding

LUA = Path(__file__).parents[3] / "lua"
STORES = ("session", "pending", "feed", "job_queue")
VALUES = ("shape", "is", "format", "backoff", "priority", "dead_key", "marker_text", "marker_huge", "tokens")
"""Keys whose values are words of a list."""
OWN = ("keys", "fields", "words", "kinds", "message", "columns")
"""Tables and lists whose names are the owner's."""


class Mistake(NamedTuple):
    """A binding with one mistake."""

    kind: str
    text: str
    wrong: str
    right: str
    """What should stand there; empty where a type is wrong, which has no spelling."""


def misspelt(word: str) -> str:
    """A word with two letters in the other order, or one twice."""
    at = len(word) // 2
    turned = word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :]
    return turned if turned != word else word[:at] + word[at:][:1] + word[at:]


def mistakes(text: str) -> Iterator[Mistake]:
    """Every mistake of these kinds in a binding: a key, a word, a field of a template, a filter; a type."""
    table = ""
    start = 0
    for line in text.splitlines(keepends=True):
        body, begin = line.split("#")[0], start
        start += len(line)
        if (head := re.match(r"\[+([\w.]+)\]", body)) is not None:
            table = head[1]
            if table.startswith("operations."):
                name = table.split(".")[1]
                at = begin + line.index(name)
                yield _mistake("operation", text, at, name)
            continue
        if (key := re.match(r"(\w+)( *= *)(.*)", body)) is None or table.split(".")[-1] in OWN:
            continue
        yield _mistake("key", text, begin, key[1])
        if key[1] in VALUES and (word := re.match(r'"([\w ]+)"', key[3])):
            yield _mistake("word", text, begin + key.start(3) + 1, word[1])
        if re.fullmatch(r"(-?\d+|true|false)\s*", key[3]):
            at = begin + key.start(3)
            yield Mistake("type", f'{text[:at]}"much"{text[at + len(key[3].strip()) :]}', key[1], "")
        if key[1] in ("keys", "args", "command"):
            if key[1] != "command" and key[3].rstrip().endswith("]"):
                at = begin + key.start(3)
                yield Mistake("type", f"{text[:at]}7{text[at + len(key[3].rstrip()) :]}", key[1], "")
            for field in re.finditer(r"<(\w{4,})(?:\|(\w{4,}))?", key[3]):
                yield _mistake("field", text, begin + key.start(3) + field.start(1), field[1])
                if field[2]:
                    yield _mistake("filter", text, begin + key.start(3) + field.start(2), field[2])


def _mistake(kind: str, text: str, at: int, right: str) -> Mistake:
    wrong = misspelt(right)
    return Mistake(kind, text[:at] + wrong + text[at + len(right) :], wrong, right)


def told(folder: Path, mistake: Mistake) -> str:
    """What is wrong with the message of a mistake; empty where nothing is."""
    file = folder / "store.toml"
    file.write_text(mistake.text)
    try:
        load_binding(folder)
    except InputError as error:
        said = str(error)
    else:
        return "is accepted"
    lacks = [f"more than one line: {said!r}"] if "\n" in said else []
    lacks += [] if said.startswith(f"{file}: ") else [f"no file: {said}"]
    lacks += [] if mistake.wrong in said else [f"no key: {said}"]
    if mistake.right:
        lacks += [] if f'did you mean "{mistake.right}"?' in said else [f"no spelling: {said}"]
    else:
        lacks += (
            [] if re.search(r": .*(?:must|should|expected|not|write|needs|is a|a list|a number|true)", said) else [said]
        )
    return "; ".join(lacks)


@pytest.mark.parametrize("store", STORES)
def test_a_mistake_is_one_line_with_file_key_and_nearest_spelling(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "lua" / store
    for name in ("session", "feed", store):
        shutil.copytree(LUA / name, tmp_path / "lua" / name, dirs_exist_ok=True)
    text = (folder / "store.toml").read_text()
    made = list(dict.fromkeys(mistakes(text)))
    assert len(made) >= 10
    assert load_binding(folder).operations
    found = {f"{one.kind} {one.wrong}": why for one in made if (why := told(folder, one))}
    assert found == {}


def test_there_are_more_than_fifty_of_five_kinds() -> None:
    made = [one for store in STORES for one in mistakes((LUA / store / "store.toml").read_text())]
    assert len(made) >= 50
    assert {one.kind for one in made} >= {"operation", "key", "word", "field", "type"}
