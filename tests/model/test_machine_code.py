"""Machine code is kept where that is possible, is never older than its text, and is never needed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orderlab.model import machine_code
from orderlab.model.files import cache_folder, is_writable

ROOT = Path(__file__).parents[2]
ADD = """
import numpy as np

from orderlab.model.machine_code import njit
from orderlab.model.other import LATER

@njit(cache=True)
def add(value):
    return np.full(2, value)[1] + LATER
"""
RUN = """
from orderlab.model import adding, machine_code
before = set(machine_code.kept_in().rglob("*.nbc"))
print(adding.add(1), adding.add.stats.cache_hits[adding.add.signatures[0]] if before else 0)
"""
COMPILER = (
    RUN
    + """
import sys
print("numba.np.arraymath" in sys.modules, adding.add(1.5), "numba.np.arraymath" in sys.modules)
"""
)
"""Was the compiler made ready to load, and for what is not kept yet?"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A small room of its own with one compiled function, which holds a constant of another module."""
    made = tmp_path / "orderlab" / "model"
    made.mkdir(parents=True)
    (made.parent / "__init__.py").write_text("")
    shutil.copy(ROOT / "orderlab" / "platform.py", made.parent)
    for name in ("__init__", "machine_code", "files", "errors"):
        shutil.copy(ROOT / "model" / f"{name}.py", made)
    (made / "machine_code.py").write_text(
        (made / "machine_code.py").read_text().replace('CONSTANTS = ("history/events.py",', 'CONSTANTS = ("other.py",')
    )
    (made / "adding.py").write_text(ADD)
    (made / "other.py").write_text("LATER = 10\n")
    return made


def run(room: Path, text: str = RUN, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    environment = {**kept, "PYTHONDONTWRITEBYTECODE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=room.parents[1], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


def test_a_second_run_compiles_nothing(room: Path) -> None:
    assert run(room) == ["11", "0"]
    assert run(room) == ["11", "1"]


def test_what_is_kept_is_loaded_without_the_compiler_which_is_there_where_it_is_needed(room: Path) -> None:
    assert run(room, COMPILER) == ["11", "0", "True", "11.5", "True"]
    run(room)
    assert run(room, COMPILER) == ["11", "1", "False", "11.5", "False"]
    (room / "adding.py").write_text(ADD + "\n")
    run(room)
    assert run(room, COMPILER) == ["11", "1", "False", "11.5", "True"]


def test_a_constant_that_changed_in_another_file_is_seen(room: Path) -> None:
    assert run(room)[0] == "11"
    (room / "other.py").write_text("LATER = 20\n")
    assert run(room)[0] == "21"


def test_code_that_is_damaged_is_made_anew(room: Path) -> None:
    run(room)
    kept = [path for path in room.rglob("*.nb?") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(b"not machine code")
    assert run(room)[0] == "11"


def test_where_nothing_can_be_written_all_is_compiled_anew(room: Path, tmp_path: Path) -> None:
    """A file stands where each folder would have to be made, which stops every user, root as well."""
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    (room / "__pycache__").write_text("")
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    for home in ({"XDG_CACHE_HOME": str(nowhere)}, {"XDG_CACHE_HOME": "", "HOME": str(nowhere)}):
        assert run(room, TMPDIR=str(elsewhere), NUMBA_CACHE_DIR=str(nowhere), **home)[0] == "11"
    assert list(elsewhere.glob("orderlab-*/machine-code-*/model/*.nbc"))


def test_old_machine_code_does_not_pile_up(tmp_path: Path) -> None:
    for number in range(machine_code.STATES_KEPT + 3):
        (made := tmp_path / f"machine-code-{number}").mkdir()
        os.utime(made, (number, number))
        machine_code._drop_old(made)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"machine-code-{number}" for number in range(2, 7)]


def test_every_module_whose_constants_are_compiled_is_part_of_the_digest() -> None:
    known = set(machine_code.sources())
    for path in sorted(known):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition("model.")[2]:
                place = machine_code.ROOM / (node.module or "").partition("model.")[2].replace(".", "/")
                constants = [name.name for name in node.names if name.name.isupper()]
                if constants and b"njit" in path.read_bytes():
                    assert place.with_suffix(".py") in known, f"{path}: {constants}; add {place} to CONSTANTS"


def test_compiled_functions_of_checkers_keep_their_code_by_this_module() -> None:
    """The generated searches of the explorer lie in a folder that can be written, under a digest of their own."""
    for path in sorted(machine_code.ROOM.rglob("*.py")):
        if path not in (Path(machine_code.__file__), machine_code.ROOM / "explorer/compiled/kernel_text.py"):
            text = path.read_text()
            assert "from numba import" not in text or "njit(cache" not in text or "machine_code import njit" in text, (
                path
            )


def test_a_folder_that_another_user_could_fill_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"orderlab-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    cache_folder.cache_clear()
    try:
        found = cache_folder("trial")
        assert shared not in found.parents
        assert is_writable(found)
        shared.chmod(0o700)
        cache_folder.cache_clear()
        assert cache_folder("trial") == shared / "trial"
    finally:
        cache_folder.cache_clear()
