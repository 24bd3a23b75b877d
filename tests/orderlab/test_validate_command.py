"""`orderlab validate` of every store that README and notes name, as a user calls it: exit code, verdicts, report."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from orderlab import cli
from orderlab.child import asked_to_end
from tests.in_process import orderlab

ROOT = Path(__file__).parents[2]
STORES = ROOT / "tests" / "properties" / "stores"
NAMED = re.compile(r"\blua/(?:specimens/)?[a-z_]+(?:-[a-z]+)*\b")
"""A store, as papers write it."""
NO_STORE = {"lua/specimens", "lua/libraries", "lua/shared", "lua/inbound"}
"""Nor is `lua/inbound` a subscriber's session: its numbers begin anew with each connection, which `counter` forbids."""
CHEAP = ("--effort", "0.01", "--backend", "kernel")

Run = Callable[..., tuple[int, str]]


class Store(NamedTuple):
    """What is asked of a store, and what is known of it."""

    path: str
    laws: tuple[str, ...]
    violated: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        return (self.path, *self.options, *(part for law in self.laws for part in ("--law", law)))


TRUSTED = ("--trust-adapter",)
OF_SESSIONS = ("no-loss", "one-slot", "expiry")
NAMED_STORES = [
    Store("lua/session", OF_SESSIONS),
    Store("lua/pending", OF_SESSIONS),
    Store("lua/specimens/published", OF_SESSIONS, OF_SESSIONS),
    Store("lua/specimens/pending-as-published", OF_SESSIONS, OF_SESSIONS),
    Store("lua/lock", ("mutual-exclusion", "one-slot"), options=TRUSTED),
    Store("lua/limiter", ("at-most-n", "one-slot"), options=TRUSTED),
    Store("lua/feed", ("progress", "one-slot")),
    Store("lua/feed_watched", ("progress", "one-slot")),
    Store("lua/job_queue", ("exclusive-lease", "one-slot")),
    Store("lua/job_queue_blocking", ("wake-up", "one-slot")),
    Store("lua/specimens/job-settled-by-any", ("exclusive-lease", "one-slot"), ("exclusive-lease",)),
    Store("lua/specimens/feed-rank-reserved", ("cursor-safe", "one-slot"), ("cursor-safe",)),
    Store("lua/specimens/lock-release-any", ("own-release", "one-slot"), ("own-release",), TRUSTED),
]
OTHERS = [Store(f"tests/properties/stores/{path.name}", ("counter",)) for path in sorted(STORES.iterdir())]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Exit code and output of `orderlab validate` with these arguments, called from the root of the repository."""
    monkeypatch.chdir(ROOT)

    def validate(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["orderlab", "validate", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capfd.readouterr()
        assert told.err == ""
        assert isinstance(ended.value.code, int)
        return int(ended.value.code), told.out

    return validate


def test_every_store_that_the_papers_name_is_in_the_table() -> None:
    papers = [ROOT / "README.md", *(ROOT / "notes").glob("*.md")]
    for name in ("gallery.md", "status.md"):  # one has a test of its own, the other says what is open
        papers.remove(ROOT / "notes" / name)
    named = {one for paper in papers for one in NAMED.findall(paper.read_text())} - NO_STORE
    assert {one for one in named if (ROOT / one / "store.toml").exists()} <= {one.path for one in NAMED_STORES}


@pytest.mark.parametrize(
    "store",
    [*NAMED_STORES, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in OTHERS)],
    ids=lambda store: store.path.rpartition("/")[2],
)
@pytest.mark.usefixtures("smallest_scopes")
def test_a_store_has_its_verdicts_and_its_exit_code(run: Run, store: Store) -> None:
    code, told = run(*store.arguments, "--json", *CHEAP)
    found = json.loads(told)
    verdicts = {one["law"]: one["outcome"] for one in found["laws"]}
    assert {law for law, outcome in verdicts.items() if outcome == "violated"} == set(store.violated)
    assert verdicts.keys() == set(store.laws)
    assert code == (1 if store.violated else 0)
    assert found["outcome"] == ("violated" if store.violated else "holds")


@pytest.mark.parametrize(
    "store",
    [one for one in NAMED_STORES if one.path in ("lua/lock", "lua/specimens/lock-release-any")],
    ids=lambda store: store.path.rpartition("/")[2],
)
def test_a_report_names_every_law_that_was_asked_for(run: Run, store: Store) -> None:
    code, told = run(*store.arguments, *CHEAP)
    assert code == (1 if store.violated else 0)
    assert f"exit code {code}" in told
    assert "seed: 0" in told
    for law in store.laws:
        assert law in told


def test_the_worked_example_of_contracts_is_a_store(run: Run, tmp_path: Path) -> None:
    note = (ROOT / "notes" / "contracts.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", note, re.DOTALL)
    (tmp_path / "store.toml").write_text(toml)
    for name in ("hit.lua", "window.py"):
        shutil.copy(ROOT / "lua" / "limiter" / name, tmp_path / name)
    assert run(tmp_path, *TRUSTED, "--law", "at-most-n", *CHEAP)[0] == 0


def test_what_is_cut_off_is_told_and_never_called_equivalent(tmp_path: Path) -> None:
    """By a cap on a comparison; by an interruption, after which every store is undecided."""
    for side in ("old", "new"):
        shutil.copytree(ROOT / "lua" / "limiter", tmp_path / side)
    (tmp_path / "new" / "hit.lua").write_text((tmp_path / "new" / "hit.lua").read_text() + "-- a remark\n")
    change = ("validate", tmp_path / "new", "--base", tmp_path / "old", "--trust-adapter", "--backend", "kernel")
    capped = orderlab(*change, "--effort", "100000", "--budget", "0.5", "-v")
    assert (capped.returncode, "not compared to the end" in capped.stdout) == (3, True)
    assert "equivalent" not in capped.stdout
    assert "the cap of" in capped.stdout
    asked_to_end.append(15)
    try:
        cut = orderlab("validate", tmp_path / "new", tmp_path / "old", *change[4:], "--effort", "quick")
    finally:
        asked_to_end.clear()
    assert cut.returncode == 3
    assert cut.stdout.count("an interruption cut off the round quick in: ") == 2
