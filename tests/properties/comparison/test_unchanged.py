"""A store against itself is equivalent, whatever it breaks: what a comment or the name of a local changes is
nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orderlab.model.verdict import Outcome
from orderlab.properties.comparison.differences import Comparison, sorted_by
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.engine.run import ContractRun
from orderlab.properties.engine.validation import COUNTING, contract_of, is_counted, validate_contract
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import wording
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.results import Script

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


def with_renamed_locals(text: str) -> str:
    """A script whose locals bear other names; one that is also a member, a key or a word of a text keeps its own."""
    texts = " ".join(re.findall(r"'[^'\n]*'|\"[^\"\n]*\"", text))
    declared = re.findall(r"(?m)^ *local (?!function\b)(\w+(?: *, *\w+)*)", text)
    for name in sorted({name for found in declared for name in re.split(r" *, *", found)}):
        kept = rf"[.:]{name}\b|\{{[^}}]*\b{name} *=[^=]"
        if not re.search(kept, text) and not re.search(rf"\b{name}\b", texts):
            text = re.sub(rf"\b{name}\b", f"{name}_renamed", text)
    return text


def with_functions_in_another_order(text: str) -> str:
    """A script of whose functions neighbours have changed places where neither calls the other."""
    before, *parts = re.split(r"(?m)(^local function (?:\w+)(?:.|\n)*?^end\n)", text)
    functions, between = parts[::2], parts[1::2]
    for at in range(len(functions) - 1):
        one, two = functions[at : at + 2]
        names = [re.findall(r"\w+", function)[2] for function in (one, two)]
        if (
            not between[at].strip()
            and not re.search(rf"\b{names[0]}\b", two)
            and not re.search(rf"\b{names[1]}\b", one)
        ):
            functions[at : at + 2] = two, one
    return before + "".join(part for pair in zip(functions, between, strict=True) for part in pair)


EDITS = {
    "comments": commented,
    "locals": with_renamed_locals,
    "functions": with_functions_in_another_order,
}


def edited(store: Binding, edits: Collection[str]) -> Binding:
    """The store with such edits made to each of its scripts, which then lie in files of other names."""
    scripts = []
    for one in store.scripts:
        text = one.source.decode()
        for edit in edits:
            text = EDITS[edit](text)
        scripts.append(Script(one.name, text.encode(), one.path.with_name(f"renamed_{one.path.name}")))
    return replace(store, scripts=tuple(scripts))


def change(store: str, effort: float, edits: Collection[str] = tuple(EDITS)) -> Comparison:
    """What comes of a change of nothing that matters."""
    before = load_binding(LUA / store, trust_adapter=True)
    after = edited(before, edits)
    return kind_of(after).compare(before, after, WorkOrder(effort))


def test_the_edits_change_the_text() -> None:
    one, two = "local function f()\n  return a\nend\n", "local function g()\n  return b\nend\n"
    assert with_functions_in_another_order(f"local a\n{one}{two}return f() + g()\n") == (
        f"local a\n{two}{one}return f() + g()\n"
    )
    assert "a_renamed, b_renamed = 1, 2" in with_renamed_locals("local a, b = 1, 2\nreturn a + b\n")
    assert with_renamed_locals("local t = {t = 1}\nreturn t.t") == "local t = {t = 1}\nreturn t.t"
    called = "local function f()\nend\nlocal function g()\n  f()\nend\n"
    assert with_functions_in_another_order(called) == called


@pytest.mark.parametrize("store", SOON)
def test_what_says_the_same_otherwise_changes_nothing(store: str) -> None:
    found = change(store, 0.05)
    assert not found.is_same_text
    assert ([one.law for one in found.newly_broken], [one.law for one in found.fixed]) == ([], [])
    assert found.is_equivalent


def validation(*texts: str, is_cut: bool = False) -> Any:
    """One that saw ``bounded`` broken in these words, by counting."""
    witnesses = [
        SimpleNamespace(finding=SimpleNamespace(text=text, analysis=COUNTING, law="bounded")) for text in texts
    ]
    outcome = Outcome.VIOLATED if texts else Outcome.HOLDS
    seen = {("bounded", wording(text)) for text in texts}
    result = SimpleNamespace(law="bounded", outcome=outcome, witnesses=witnesses)
    return SimpleNamespace(results=[result], seen=seen, is_cut=is_cut)


def test_what_was_counted_is_the_same_in_the_same_words() -> None:
    take, again, recover = (
        "take makes 808 calls with 400 jobs",
        "take makes 900 calls with 444 jobs",
        "recover makes 9 calls with 4 jobs",
    )

    def newly(after: Any, before: Any) -> list[str]:
        return [one.witness.finding.text for one in sorted_by(after, None, None, before, is_counted)[0]]  # type: ignore[arg-type, union-attr]

    assert newly(validation(take), validation(again)) == []
    assert newly(validation(take, recover), validation(again)) == [recover]
    assert newly(validation(take), validation()) == [take]
    shown = [f"{name} makes 9 calls with 4 jobs" for name in ("add", "settle", "pause", "clean", "get")]
    assert newly(validation(take), validation(*shown)) == [take]
    assert newly(validation(take), validation(*shown, take)) == []
    assert newly(validation(take), validation(is_cut=True)) == [], "it may have come to it"


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
    before, after = (
        validate_contract(load_binding(tmp_path / side), WorkOrder(0.05, 0, ["bounded"])) for side in ("old", "new")
    )
    contract = contract_of(after.binding)
    reruns = ContractReruns(lambda: ContractRun(before.binding, contract, KernelBackend(), contract.clients))
    own = ContractReruns(lambda: ContractRun(after.binding, contract, KernelBackend(), contract.clients))
    newly, still = (
        [one.witness.headline for one in part if one.witness]
        for part in sorted_by(after, own, reruns, before, is_counted)
    )
    assert newly
    assert all("leases that have lapsed" in one for one in newly)
    assert still
    assert all("jobs whose delay is over" in one for one in still)
    nothing_new, the_same = sorted_by(before, reruns, reruns, before, is_counted)
    assert (nothing_new, len(the_same)) == ([], len(before.results[0].witnesses))


@pytest.mark.exhaustive
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("edit", EDITS)
def test_what_says_the_same_otherwise_changes_nothing_in_any_store(store: str, edit: str) -> None:
    found = change(store, 1.0, [edit])
    assert found.is_equivalent, [one.witness and one.witness.headline for one in (*found.newly_broken, *found.fixed)]
