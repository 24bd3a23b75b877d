"""Sound stores of other projects' styles against themselves, refactored: equivalent, and no law is broken.

With the thirty of ``test_comparison.py`` and ``test_contracts.py`` there are three hundred, each of which changes what
the scripts compile to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orderlab.model.verdict import Outcome
from orderlab.properties.comparison.differences import Comparison, has_same_code
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.contracts.sequential.test_other_styles import STYLES

LITTLE = 0.02


def in_a_function(text: str) -> str:
    """All of a script in one function, which it calls last."""
    return f"local function main()\n{text.rstrip()}\nend\nreturn main()\n"


def with_a_name_for_call(text: str) -> str:
    """A script that calls by a local."""
    return text if "redis.call(" not in text else f"local call = redis.call\n{text.replace('redis.call(', 'call(')}"


def in_small_letters(text: str) -> str:
    """A script that writes commands in small letters."""
    return re.sub(r"(redis\.p?call\()'([A-Z]+)'", lambda found: f"{found[1]}'{found[2].lower()}'", text)


def with_a_name_for_an_argument(text: str) -> str:
    """A script that names its first argument."""
    return text if "ARGV[1]" not in text else f"local given = ARGV[1]\n{text.replace('ARGV[1]', 'given')}"


def with_a_name_for_a_key(text: str) -> str:
    """A script that names its first key."""
    return text if "KEYS[1]" not in text else f"local first_key = KEYS[1]\n{text.replace('KEYS[1]', 'first_key')}"


def inserting(text: str) -> str:
    """A script that adds to lists by the library's function."""
    return re.sub(r"(?m)^( *)(\w+)\[#\2 \+ 1\] = (.+)$", r"\1table.insert(\2, \3)", text)


def asking_for_nil(text: str) -> str:
    """A script that says what ``not`` means."""
    return re.sub(r"\bif not (\w+) then\b", r"if \1 == nil or \1 == false then", text)


REFACTORINGS: dict[str, Callable[[str], str]] = {
    "in a function": in_a_function,
    "a name for call": with_a_name_for_call,
    "small letters": in_small_letters,
    "a name for an argument": with_a_name_for_an_argument,
    "a name for a key": with_a_name_for_a_key,
    "insert": inserting,
    "nil": asking_for_nil,
}


def files_of(style: str, refactoring: str) -> dict[str, str]:
    """The files of a store, each script refactored; a file that others include is no script."""
    files = dict(STYLES[style]["files"])
    included = {f"{name}.lua" for text in files.values() for name in re.findall(r'--- @include "(.+)"', text)}
    for file in [one for one in files if one.endswith(".lua") and one not in included]:
        files[file] = REFACTORINGS[refactoring](files[file])
    return files


ALL = [(style, one) for style in STYLES for one in REFACTORINGS if files_of(style, one) != dict(STYLES[style]["files"])]
SOON = [("login_guard", "in a function"), ("multi_lock", "nil"), ("slots_semaphore", "small letters")]


def both(folder: Path, style: str, refactoring: str) -> tuple[Binding, Binding]:
    """The store, and the refactored one."""
    for side, files in (("old", dict(STYLES[style]["files"])), ("new", files_of(style, refactoring))):
        for file, text in files.items():
            (folder / side / file).parent.mkdir(exist_ok=True, parents=True)
            (folder / side / file).write_text(text)
    old, new = (load_binding(folder / side, trust_adapter=True) for side in ("old", "new"))
    return old, new


def compared(folder: Path, style: str, refactoring: str, effort: float) -> Comparison:
    old, new = both(folder, style, refactoring)
    return kind_of(new).compare(old, new, WorkOrder(effort))


def assert_nothing_is_told(found: Comparison) -> None:
    assert [one.text for one in found.differences] == []
    assert [one.witness and one.witness.headline for one in (*found.newly_broken, *found.fixed)] == []
    assert found.is_equivalent
    assert [one.law for one in found.after.results if one.outcome is Outcome.VIOLATED] == []


def test_there_are_two_hundred_that_are_other_code(tmp_path: Path) -> None:
    assert len(ALL) >= 200
    for number, (style, one) in enumerate(ALL[::5]):
        assert not has_same_code(*both(tmp_path / str(number), style, one)), (style, one)


@pytest.mark.parametrize(("style", "refactoring"), SOON)
def test_a_refactoring_changes_nothing(tmp_path: Path, style: str, refactoring: str) -> None:
    assert_nothing_is_told(compared(tmp_path, style, refactoring, LITTLE))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("style", "refactoring"), ALL)
def test_no_refactoring_of_any_style_changes_anything(tmp_path: Path, style: str, refactoring: str) -> None:
    assert_nothing_is_told(compared(tmp_path, style, refactoring, 1.0))
