"""Stores in the styles of other projects, written from the contracts' descriptions alone, with slips as people make.

Each file of ``other_styles`` holds one store that is sound, and its slips: a piece of one file, and what stands there
instead.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from orderlab.model.verdict import Outcome
from orderlab.properties.engine.validation import validate_contract
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

FOLDER = Path(__file__).parent / "other_styles"
STYLES = {path.stem: tomllib.loads(path.read_text()) for path in sorted(FOLDER.glob("*.toml"))}
SLIPS = [(style, slip["name"]) for style, one in STYLES.items() for slip in one["slips"]]


def store(folder: Path, style: str, name: str = "", change: tuple[str, str] = ("", "")) -> Binding:
    """The store of that style, with the slip of that name if there is one, and another change."""
    files = {file: text.replace(*change) if change[0] else text for file, text in STYLES[style]["files"].items()}
    for slip in STYLES[style]["slips"]:
        if slip["name"] == name:
            script, find = slip["script"], slip["find"].strip("\n")
            assert files[script].count(find) >= 1
            files[script] = files[script].replace(find, slip.get("replace", "").strip("\n"))
            files |= slip.get("files", {})
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    return load_binding(folder, trust_adapter=True)


def broken_laws(binding: Binding, effort: float) -> set[str]:
    return {one.law for one in validate_contract(binding, WorkOrder(effort)).results if one.outcome is Outcome.VIOLATED}


def test_the_styles_have_slips_of_their_own() -> None:
    assert len(STYLES) == 52
    assert len(SLIPS) == len(set(SLIPS)) == 351


@pytest.mark.parametrize("style", STYLES)
def test_every_slip_can_be_put_in(tmp_path: Path, style: str) -> None:
    for slip in STYLES[style]["slips"]:
        store(tmp_path, style, slip["name"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("style", STYLES)
def test_a_sound_store_of_another_style_holds(tmp_path: Path, style: str) -> None:
    assert not broken_laws(store(tmp_path, style), 1.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("style", "slip"), SLIPS)
def test_a_slip_falls(tmp_path: Path, style: str, slip: str) -> None:
    assert broken_laws(store(tmp_path, style, slip), 1.0)
