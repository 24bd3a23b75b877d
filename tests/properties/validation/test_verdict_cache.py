"""Verdicts that are kept: told again where nothing has changed, and never where anything has."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from orderlab.properties.contracts.session.kind import PENDING, SessionKind
from orderlab.properties.validation import verdict_cache
from orderlab.properties.validation.validation import Validation
from orderlab.properties.validation.verdict_cache import VerdictCache
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.loader import load_binding
from tests.in_process import ROOT, orderlab

EFFORT = ("--effort", "0.05", "--backend", "kernel")


@pytest.fixture(scope="module")
def known() -> Validation:
    """What there is to say of the store; one run for all tests."""
    return PENDING.judged(load_binding(ROOT / "lua/pending"), WorkOrder(effort=0.01, laws=("counter",)))


@pytest.fixture
def judged(known: Validation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The stores that are judged from here on, with a cache of its own."""
    monkeypatch.setenv("ORDERLAB_CACHE", "1")
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(verdict_cache, "cache_folder", lambda name: tmp_path / "cache")
    names: list[str] = []

    def validate(self, binding, order):  # type: ignore[no-untyped-def]
        names.append(binding.name)
        return replace(known, binding=binding, seed=order.seed, is_cut=order.budget_s is not None)

    monkeypatch.setattr(SessionKind, "validate", validate)
    return names


@pytest.fixture
def store(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "lua/pending", tmp_path / "pending")
    return tmp_path / "pending"


def run(store: Path, *more: str) -> CompletedProcess[str]:
    return orderlab("validate", store, *EFFORT, *more)


def test_what_has_not_changed_is_told_again_byte_for_byte(judged: list[str], store: Path) -> None:
    for form in ((), ("--json",), ("-v",)):
        first, second, third = run(store, *form, "--no-cache"), run(store, *form), run(store, *form)
        assert first.stdout == second.stdout == third.stdout
        assert first.returncode == second.returncode == third.returncode
        assert "nothing has changed" in third.stderr
    assert len(judged) == 3 + 1  # each without the cache, and the first with it


def test_a_change_of_anything_is_judged(judged: list[str], store: Path) -> None:
    run(store)
    script = next(store.glob("*.lua"))
    script.write_text(script.read_text() + "\n-- the same\n")
    run(store)
    (store / "store.toml").write_text((store / "store.toml").read_text() + "\n# the same\n")
    run(store)
    run(store, "--seed", "1")
    run(store, "--law", "no-loss")
    orderlab("validate", store, "--effort", "0.06", "--backend", "kernel")
    assert len(judged) == 6
    run(store)
    assert len(judged) == 6


def test_another_program_judges_again(judged: list[str], store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(store)
    monkeypatch.setattr(verdict_cache, "program_digest", lambda: b"another")
    run(store)
    assert len(judged) == 2


def test_a_damaged_entry_is_none(judged: list[str], store: Path, tmp_path: Path) -> None:
    first = run(store)
    (entry,) = (tmp_path / "cache").rglob("*.json")
    whole = json.loads(entry.read_bytes())
    damaged = [b"", b"{", b"[]", json.dumps({**whole, "sum": "0" * 64}).encode()]
    damaged += [json.dumps({**whole, "outcome": "fine"}).encode(), json.dumps({**whole, "subject": {}}).encode()]
    damaged += [entry.read_bytes().replace(b'"holds"', b'"violated"')]  # each of which a report could be made of
    for count, content in enumerate(damaged):
        entry.write_bytes(content)
        assert run(store).stdout == first.stdout
        assert len(judged) == 2 + count


def test_an_entry_with_any_bytes_changed_is_none_or_says_the_same(tmp_path: Path) -> None:
    cache, draw = VerdictCache(tmp_path), random.Random(26)
    entry = {"outcome": "violated", "text": "é", "subject": {"laws": [{"law": "fifo", "count": 3, "ü": None}]}}
    cache.put("k", entry)
    (file,) = tmp_path.glob("*.json")
    good = file.read_bytes()
    told = 0
    for _ in range(2000):
        bad = bytearray(good)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(bad))
            match draw.randrange(4):
                case 0:
                    bad[at] = draw.randrange(256)
                case 1:
                    bad[at : at + 1] = b"" if len(bad) > 1 else b"x"
                case 2:
                    bad.insert(at, draw.randrange(256))
                case 3:
                    bad = bad[: max(at, 1)]
        file.write_bytes(bad)
        found = cache.get("k")
        assert found in (None, entry), bytes(bad)
        told += found is None
    assert told > 1000


def test_a_capped_run_keeps_nothing(judged: list[str], store: Path) -> None:
    for _ in range(2):
        run(store, "--budget", "30")
    assert len(judged) == 2


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict_cache, "ENTRIES_MAX", 8)
    cache = VerdictCache(tmp_path)
    for number in range(20):
        cache.put(f"{number:02}", {"number": number})
        assert len(list(tmp_path.glob("*.json"))) <= 8
    assert cache.get("19") == {"number": 19}
    (tmp_path / "18.json").write_bytes((tmp_path / "19.json").read_bytes())
    assert cache.get("18") is None
    cache.put(None, {})
    assert cache.get(None) is None


def test_a_store_with_python_of_its_owner_is_never_kept() -> None:
    cache = VerdictCache()
    assert cache.key([load_binding(ROOT / "lua/pending")], 0) is not None
    assert cache.key([load_binding(ROOT / "lua/lock", trust_adapter=True)], 0) is None
