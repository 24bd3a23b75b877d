"""The plugin from end to end, in a folder of a user's: profiles, -n 2, strictness, kept examples, reproducing by
hand."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.properties.plugin.test_plugin import LUA, ROOT, run_pytest


def store(folder: Path, file: str = "", old: str = "", new: str = "") -> Path:
    """A user's store: that of the suite with one edit. Returns its ``store.toml``."""
    shutil.copytree(LUA / "session", folder / "store")
    if file:
        script = folder / "store" / file
        assert old in script.read_text()
        script.write_text(script.read_text().replace(old, new))
    return folder / "store" / "store.toml"


@pytest.fixture
def forgetful(tmp_path: Path) -> Path:
    """Loses what is published to one topic, one that the machines use and no scenario does."""
    lost = "deadline > now and not string.find(ARGV[5 + 2 * i], 'topic/2', 1, true) and deadline"
    return store(tmp_path, "save.lua", "deadlines[i] = deadline > now and deadline", f"deadlines[i] = {lost}")


def test_what_a_machine_finds_is_kept_tried_first_and_reproduced_by_hand(tmp_path: Path, forgetful: Path) -> None:
    law = ("--orderlab-store", str(forgetful), "--orderlab-law", "no-loss", "--orderlab-statistics")
    first = run_pytest(tmp_path, *law)
    assert first.returncode == 1, first.stdout + first.stderr
    assert "no-loss is violated" in first.stdout
    assert any((tmp_path / ".hypothesis" / "orderlab").rglob("*"))
    found = re.search(r"Hypothesis: @reproduce_failure\('(.*?)', (b'.*?')\) on Small(\w+)", first.stdout)
    assert found is not None, first.stdout
    again = run_pytest(tmp_path, *law)
    assert again.returncode == 1

    def examples(text: str) -> int:
        return sum(int(count.replace(",", "")) for count in re.findall(r"([\d,]+) examples", text))

    assert 0 < examples(again.stdout) < examples(first.stdout)
    version, blob, machine = found.groups()
    (tmp_path / "test_by_hand.py").write_text(
        f"""from pathlib import Path
from hypothesis import reproduce_failure
from orderlab.properties.contracts.session.machines.on_store import ALL
from orderlab.properties.contracts.session.machines.on_store import on_kernel
from orderlab.properties.contracts.session.subject import Subject
from orderlab.sim.stores.binding.loader import load_binding

kind = next(one for one in ALL if one.__name__ == {machine!r})
small = Subject(load_binding(Path("store"))).scaled(3)
machine = on_kernel(kind, small, "ByHand", laws=frozenset(["no-loss"]))
TestByHand = reproduce_failure({version!r}, {blob})(machine).TestCase
"""
    )
    by_hand = run_pytest(tmp_path, "test_by_hand.py")
    assert by_hand.returncode == 1
    assert "LawViolated: no-loss" in by_hand.stdout
    assert re.search(r"E +1\. producer \d saves m\d", by_hand.stdout)
    assert re.search(r"E +\S*store/save\.lua:\d+: \S", by_hand.stdout), "the line of Lua"
    kept = ".orderlab/test_by_hand.py-TestByHand-runTest.json"
    assert f"replay it: orderlab replay {kept}" in by_hand.stdout
    trace = json.loads((tmp_path / kept).read_text())
    assert (trace["law"], trace["modulus"]) == ("no-loss", 3)
    assert trace["store"] == "store"
    assert ROOT.name not in first.stdout.split("orderlab replay ")[1].splitlines()[0]


def test_two_processes_write_one_junit_file(tmp_path: Path) -> None:
    path = store(tmp_path, "fetch.lua", "if deadline > now then", "if deadline >= now then")
    laws = ("--orderlab-law", "expiry", "--orderlab-law", "store-order")
    options = ("--orderlab-seed", "5", "-n", "2", "--junitxml", "junit.xml", "--orderlab-statistics")
    found = run_pytest(tmp_path, "--orderlab-store", str(path), *laws, *options)
    assert found.returncode == 1, found.stdout + found.stderr
    cases = {}
    for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase"):
        told = {one.get("name"): one.get("value") for one in case.iter("property")}
        cases[told["orderlab-law"]] = (told["orderlab-seed"], told["orderlab-profile"], told["orderlab-outcome"])
    assert cases == {"expiry": ("5", "dev", "violated"), "store-order": ("5", "dev", "holds")}
    assert re.search(r"tested: .*several messages live \d", found.stdout)
    assert re.search(r"rules: \w", found.stdout)


def test_what_stays_unknown_is_skipped_and_fails_where_one_is_strict(tmp_path: Path) -> None:
    path = store(tmp_path, "save.lua", "if not meta then", "if true then")  # refuses every save: nothing is ever queued
    law = ("--orderlab-store", str(path), "--orderlab-law", "store-order", "-rs")
    lenient = run_pytest(tmp_path, *law)
    assert lenient.returncode == 0, lenient.stdout
    assert "unknown: " in lenient.stdout
    strict = run_pytest(tmp_path, *law, "--orderlab-strict")
    assert strict.returncode == 1
    assert "store-order is unknown" in strict.stdout


def test_a_night_ends_when_its_time_is_over_and_sums_up(tmp_path: Path) -> None:
    law = ("--orderlab-store", str(store(tmp_path)), "--orderlab-law", "store-order")
    night = run_pytest(tmp_path, *law, "--orderlab-profile", "nightly", "--orderlab-seconds", "1", "-v")
    assert night.returncode == 0, night.stdout + night.stderr
    assert "profile nightly, seed 0, 1 laws to test, 1 s each" in night.stdout
    assert re.search(r"store-order +(holds|unknown) ", night.stdout)
    assert re.search(r"1 law in \d+ s, profile nightly, seed 0", night.stdout)
