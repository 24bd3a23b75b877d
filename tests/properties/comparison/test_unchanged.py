"""A store against itself is equivalent, whatever it breaks: what a comment or the name of a local changes is
nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orderlab.model.verdict import Outcome
from orderlab.properties.comparison.change import Comparison, sorted_by
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.contracts.sequential.run import ContractRun
from orderlab.properties.contracts.sequential.validation import COUNTING, contract_of, is_counted, validate_contract
from orderlab.properties.contracts.sequential.witness import ContractReruns
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path(__file__).parents[3] / "orderlab" / "lua"
STORES = sorted(str(file.parent.relative_to(LUA)) for file in LUA.rglob("store.toml"))
SOON = ["specimens/lock-release-any", "limiter"]


def commented(text: str) -> str:
    """A script with two comments more: below its first line, which may say what it is, and at its end."""
    first, _, rest = text.partition("\n")
    return (
        f"{first}\n-- a remark\n\n{rest.rstrip()}\n-- the end\n"
        if first.startswith(("#!", "--"))
        else f"-- a remark\n{text}\n-- the end\n"
    )


def compared(old: Path, new: Path, effort: float, laws: list[str] | None = None) -> Comparison:
    """What comes of a change from one store to another."""
    before, after = (load_binding(one, trust_adapter=True) for one in (old, new))
    return kind_of(after).compare(before, after, effort, 0, laws, None, lambda text: None)


def change(folder: Path, store: str, effort: float) -> Comparison:
    """What comes of a change of nothing but comments."""
    for side in ("old", "new"):
        shutil.copytree(LUA, folder / side)
    for file in (folder / "new").rglob("*.lua"):
        file.write_text(commented(file.read_text()))
    return compared(folder / "old" / store, folder / "new" / store, effort)


@pytest.mark.parametrize("store", SOON)
def test_a_comment_changes_nothing(tmp_path: Path, store: str) -> None:
    found = change(tmp_path, store, 0.05)
    assert ([one.law for one in found.newly_broken], [one.law for one in found.fixed]) == ([], [])
    assert found.is_equivalent


def validation(*texts: str) -> Any:
    """One that saw ``bounded`` broken in these words, by counting."""
    witnesses = [
        SimpleNamespace(finding=SimpleNamespace(text=text, analysis=COUNTING, law="bounded")) for text in texts
    ]
    outcome = Outcome.VIOLATED if texts else Outcome.HOLDS
    return SimpleNamespace(results=[SimpleNamespace(law="bounded", outcome=outcome, witnesses=witnesses)])


def test_what_was_counted_is_the_same_in_the_same_words() -> None:
    take, again, recover = (
        "take makes 808 calls with 400 jobs",
        "take makes 900 calls with 444 jobs",
        "recover makes 9 calls with 4 jobs",
    )

    def newly(after: Any, before: Any) -> list[str]:
        return [one.witness.finding.text for one in sorted_by(after, None, before, is_counted)[0]]  # type: ignore[arg-type, union-attr]

    assert newly(validation(take), validation(again)) == []
    assert newly(validation(take, recover), validation(again)) == [recover]
    assert newly(validation(take), validation()) == [take]
    shown = [f"{name} makes 9 calls with 4 jobs" for name in ("add", "settle", "pause", "clean", "get")]
    assert newly(validation(take), validation(*shown)) == [], "there may be more than the five that are shown"


@pytest.mark.exhaustive
def test_what_was_counted_is_told_apart_by_its_words(tmp_path: Path) -> None:
    for side in ("old", "new"):
        shutil.copytree(LUA / "job_queue", tmp_path / side)
    unbounded = {"old": "'-inf', now_ms, 'LIMIT', 0, batch", "new": "'LIMIT', 0, batch"}
    for side, limits in unbounded.items():
        file = tmp_path / side / "take.lua"
        text = file.read_text()
        assert limits in text
        file.write_text(
            re.sub(", 'LIMIT', 0, batch", "", text) if side == "new" else text.replace(limits, "'-inf', now_ms")
        )
    before, after = (validate_contract(load_binding(tmp_path / side), 0.05, 0, ["bounded"]) for side in ("old", "new"))
    contract = contract_of(after.binding)
    reruns = ContractReruns(lambda: ContractRun(before.binding, contract, KernelBackend(), contract.clients))
    newly, still = (
        [one.witness.headline for one in part if one.witness] for part in sorted_by(after, reruns, before, is_counted)
    )
    assert newly
    assert all("leases that have lapsed" in one for one in newly)
    assert still
    assert all("jobs whose delay is over" in one for one in still)
    nothing_new, the_same = sorted_by(before, reruns, before, is_counted)
    assert (nothing_new, len(the_same)) == ([], len(before.results[0].witnesses))


@pytest.mark.exhaustive
@pytest.mark.parametrize("store", STORES)
def test_a_comment_changes_nothing_in_any_store(tmp_path: Path, store: str) -> None:
    found = change(tmp_path, store, 1.0)
    assert found.is_equivalent, [one.witness and one.witness.headline for one in (*found.newly_broken, *found.fixed)]
