"""Old and new scripts of a session store on the same data: what only the mix breaks, and its safe neighbours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import Serve, Trace, Wait
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.comparison.differences import Cap, RollingUpgrade
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.contracts.session.comparison.rolling import rolling_upgrade
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.comparison.test_comparison import SESSION, edited

MATCH = "'^(%d+) (%d+) (%d+) (%d+) (%d+)$'"
MIXES = {
    "a renamed key": ("store.toml", '"{s:<client>}:b"', '"{s:<client>}:body"'),
    "more fields in the head than the old one reads": (
        "save.lua",
        "'%s %d %d %d %d', begun",
        "'%s %d %d %d %d 2', begun",
    ),
}


def rolled(old: Binding, new: Binding) -> RollingUpgrade:
    return rolling_upgrade(old, new, STORE_LAWS, WorkOrder(0.05), Cap(None))


def is_broken(trace: Trace, law: str, binding: Binding) -> bool:
    return any(law in dict(one["broken"]) for one in kind_of(binding).replay(trace, binding, KernelBackend()))


def with_reader_of_both(folder: Path) -> Binding:
    """Writes what the old scripts write; reads a longer head as well."""
    return edited(folder, "save.lua", MATCH, "'^(%d+) (%d+) (%d+) (%d+) (%d+)'")


@pytest.mark.parametrize("name", ["a renamed key", "more fields in the head than the old one reads"])
def test_what_only_the_mix_breaks_has_a_short_witness_that_replays(name: str, tmp_path: Path) -> None:
    old, new = load_binding(SESSION), edited(tmp_path / "new", *MIXES[name])
    if name.startswith("more"):
        script = tmp_path / "new" / "save.lua"
        script.write_text(script.read_text().replace(MATCH, "'^(%d+) (%d+) (%d+) (%d+) (%d+)'"))
        new = load_binding(tmp_path / "new")
    found = rolled(old, new).broken
    assert found
    shortest = min((one.witness.finding for one in found if one.witness and one.is_certain), key=lambda one: one.size)
    assert len(shortest.trace.steps) <= 6
    assert any(isinstance(step, Serve) for step in shortest.trace.steps)
    again = Trace.from_json(shortest.trace.to_json())
    assert is_broken(again, shortest.law, replace(new, base=old))
    for one in found:
        if one.witness is not None:
            for step, told in zip(one.witness.finding.trace.steps, one.witness.explanation.told, strict=True):
                assert (told == "") == isinstance(step, Serve | Wait), (
                    "a step that asks nothing of the store has no reply"
                )
    plain = replace(again, steps=tuple(step for step in again.steps if not isinstance(step, Serve)))
    assert not is_broken(plain, shortest.law, old)
    assert not is_broken(plain, shortest.law, new)


def test_a_reader_of_both_formats_is_safe_in_the_mix(tmp_path: Path) -> None:
    assert rolled(load_binding(SESSION), with_reader_of_both(tmp_path / "new")).broken == ()
