"""The plugin as a user meets it: a store and no Python; a story, a trace, JUnit properties; inert when not asked
for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[3]
LUA = ROOT / "lua"
LOADED = (
    []
    if any(one.name == "orderlab" for one in entry_points(group="pytest11"))
    else ["-p", "orderlab.properties.plugin"]
)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest of the user's, in a folder of his own."""
    (folder / "pytest.ini").touch()
    command = [sys.executable, "-m", "pytest", *LOADED, "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_one_test_for_each_law(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "--orderlab-store", str(LUA / "session"), "--collect-only", "-q")
    ids = [line.rpartition("::")[2] for line in found.stdout.splitlines() if "::" in line]
    assert ids[:3] == ["store-order", "no-loss", "packet-id"]
    assert len(ids) == 13
    again = run_pytest(tmp_path, "--orderlab-store", str(LUA / "session"), "--collect-only", "-q", "-n", "0")
    assert [line for line in again.stdout.splitlines() if "::" in line] == [
        line for line in found.stdout.splitlines() if "::" in line
    ]


def test_a_failing_store_tells_its_story(tmp_path: Path) -> None:
    found = run_pytest(
        tmp_path,
        "--orderlab-store",
        str(LUA / "specimens" / "fetch-removes"),
        "--orderlab-law",
        "no-loss",
        "--orderlab-seed",
        "7",
        "--orderlab-statistics",
        "--junitxml",
        "junit.xml",
        "-n",
        "1",
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert "no-loss is violated" in found.stdout
    assert "  1. producer 1 saves m1" in found.stdout
    assert "fetch.lua:" in found.stdout
    assert "orderlab replay .orderlab/fetch-removes-no-loss.json" in found.stdout
    assert "orderlab statistics" in found.stdout
    trace = json.loads((tmp_path / ".orderlab" / "fetch-removes-no-loss.json").read_text())
    assert len(trace["steps"]) <= 3
    properties = {
        one.get("name"): one.get("value") for one in ElementTree.parse(tmp_path / "junit.xml").iter("property")
    }
    assert properties["orderlab-law"] == "no-loss"
    assert properties["orderlab-seed"] == "7"
    assert properties["orderlab-outcome"] == "violated"


def test_an_effort_judges_as_validate_does(tmp_path: Path) -> None:
    given = ["--orderlab-law", "no-loss", "--orderlab-law", "counter", "--orderlab-effort", "0.05"]
    found = run_pytest(tmp_path, "--orderlab-store", str(LUA / "specimens" / "fetch-removes"), *given)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "orderlab: effort 0.05, seed 0, 2 laws to test" in found.stdout
    assert "1 failed, 1 passed" in found.stdout
    assert "test it again: pytest" in found.stdout
    assert "--orderlab-law no-loss --orderlab-effort 0.05 --orderlab-seed 0" in found.stdout


def workers_of(output: str) -> list[str]:
    """Which process of pytest-xdist took each law."""
    return re.findall(r"^\[(gw\d+)\].*::", output, re.MULTILINE)


@pytest.mark.parametrize("distribution", [(), ("--dist", "worksteal"), ("--dist", "loadgroup")])
def test_one_process_takes_all_laws_that_are_judged_in_one_go(tmp_path: Path, distribution: tuple[str, ...]) -> None:
    laws = [part for law in ("no-loss", "counter", "expiry", "drain") for part in ("--orderlab-law", law)]
    given = ["--orderlab-store", str(LUA / "session"), *laws, "-n", "2", "-v", *distribution]
    found = run_pytest(tmp_path, *given, "--orderlab-effort", "0.05", "--junitxml", "junit.xml")
    taken = workers_of(found.stdout)
    assert (len(taken), len(set(taken))) == (4, 1), found.stdout + found.stderr
    named = [(one.get("name"), one.get("value")) for one in ElementTree.parse(tmp_path / "junit.xml").iter("property")]
    assert ("orderlab-effort", "0.05") in named
    assert "orderlab-profile" not in dict(named), "an effort takes the place of the profile"


def test_laws_that_are_judged_one_by_one_are_shared_by_all_processes(tmp_path: Path) -> None:
    laws = [part for law in ("packet-id", "counter", "expiry", "drain") for part in ("--orderlab-law", law)]
    found = run_pytest(tmp_path, "--orderlab-store", str(LUA / "session"), *laws, "-n", "2", "-v")
    taken = workers_of(found.stdout)
    assert (len(taken), len(set(taken))) == (4, 2), found.stdout + found.stderr


def test_an_effort_that_there_is_not_is_one_line(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "--orderlab-store", str(LUA / "session"), "--orderlab-effort", "fast")
    assert found.returncode == 4
    assert "--orderlab-effort fast: no such effort; give quick (1), standard (10), thorough (50)" in found.stderr


def test_a_word_that_the_marker_of_the_fixture_does_not_take_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import pytest\n@pytest.mark.orderlab_redis(servr='7.2')\ndef test_own(orderlab_redis):\n    pass\n"
    )
    found = run_pytest(tmp_path)
    assert "orderlab_redis(servr=...): it takes cluster, password, virtual_clock, server" in found.stdout
    assert found.returncode == 1


def test_it_takes_a_store_from_the_configuration_along_with_other_tests(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\norderlab_stores = {LUA / 'session' / 'store.toml'}\n")
    found = run_pytest(tmp_path, "--collect-only", "-q", "-c", "pytest.ini")
    assert "test_own.py::test_own" in found.stdout
    assert "store.toml::no-loss" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--orderlab-store", "missing"), "name a store.toml or the folder that holds one"),
        (("--orderlab-store", str(LUA / "session"), "--orderlab-law", "no-los"), "did you mean no-loss?"),
        (("--orderlab-store", str(LUA / "session"), "--orderlab-law", "fifo"), "not a law of a store"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    found = run_pytest(tmp_path, *arguments)
    assert found.returncode == 4
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_it_is_inert_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n"
        "def test_own():\n"
        "    rooms = {'orderlab.model', 'orderlab.sim', 'hypothesis', 'lupa', 'numpy'}\n"
        "    assert not rooms & set(sys.modules)\n"
        "    assert 'orderlab.properties.plugin' in sys.modules\n"
    )
    found = run_pytest(tmp_path, "-p", "no:hypothesispytest", "test_own.py")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "orderlab:" not in found.stdout
