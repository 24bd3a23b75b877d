"""A story of rules that a user wrote ends with the line of Lua, on whichever backend they ran."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import strategies as st

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import Acknowledge, Fetch, Save, Trace
from orderlab.properties.contracts.session.machines.on_store import on_backend, on_kernel
from orderlab.properties.contracts.session.machines.store import LawViolated, StoreMachine
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.single_law import search
from orderlab.properties.machines.tally import rule
from orderlab.properties.profiles import Profile
from orderlab.sim.redis.backends import open_backend
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore

SESSION = Path(__file__).parents[5] / "lua" / "session"
SHORT = Profile("short", 20, 10)
NO_LOSS = frozenset(["no-loss"])
RIGHT = "call('HDEL', body, id)"
WRONG = RIGHT + " call('ZREMRANGEBYRANK', index, 1, 1)"
"""An acknowledgement that takes the oldest message along."""


class Burst(StoreMachine):
    """That of the note."""

    @rule(size=st.integers(1, 4))
    def burst(self, size: int) -> None:
        self.take(Save(self.batch([(None, 1)] * size), limit=100))

    @rule()
    def acknowledge_newest(self) -> None:
        self.take(Fetch())
        for label in reversed(self.live(0)):
            self.take(Acknowledge(label))


@pytest.fixture
def greedy(tmp_path: Path) -> Binding:
    for file in SESSION.iterdir():
        text = file.read_text()
        (tmp_path / file.name).write_text(text.replace(RIGHT, WRONG) if file.name == "acknowledge.lua" else text)
    return load_binding(tmp_path)


def violation_of(machine: type[StoreMachine], shrinks: bool = True) -> LawViolated:
    found = search(machine, SHORT, 1, None, shrinks)
    assert found is not None
    return found[0]


def place_in(binding: Binding) -> str:
    """What a story says of the line that is wrong."""
    file = binding.path / "acknowledge.lua"
    line = file.read_text().split(WRONG)[0].count("\n") + 1
    return rf"\n  {re.escape(str(file))}:{line}: {re.escape(WRONG)}\n     redis.call: ZREMRANGEBYRANK \S+ 1 1\n"


def test_a_users_rules_tell_a_story_with_the_line_of_lua(greedy: Binding) -> None:
    story = str(violation_of(on_kernel(Burst, Subject(greedy), "Burst", laws=NO_LOSS)))
    assert story.startswith("no-loss is violated: ")
    assert re.findall(r"\n  (\d)\. (\w+)", story) == [("1", "producer"), ("2", "producer"), ("3", "fetch")]
    assert "keys before the last step" in story
    assert re.search(place_in(greedy), story), story
    assert story.endswith("found by the state machine Burst; on kernel 7.0.15, packet identifiers 1 to 65,535")


def test_elsewhere_than_on_the_kernel_the_line_is_the_kernels(greedy: Binding) -> None:
    with open_backend("fakeredis") as backend:
        story = str(violation_of(on_backend(Burst, greedy, backend, "BurstElsewhere", laws=NO_LOSS), shrinks=False))
    assert re.search(place_in(greedy), story), story
    assert "keys and line are those of the kernel" in story


def test_a_script_that_fails_is_told_with_what_it_had_written(tmp_path: Path, greedy: Binding) -> None:
    file = tmp_path / "acknowledge.lua"
    file.write_text(file.read_text().replace(WRONG, "call('HDEL', index, id)"))
    story = str(violation_of(on_kernel(Burst, Subject(load_binding(tmp_path)), "BurstFails")))
    (failed,) = re.findall(r"acknowledge\.lua:(\d+): call\('HDEL', index, id\)\n     redis.call: HDEL ", story)
    assert re.search(rf"written before it failed: \S+acknowledge\.lua:{int(failed) - 1}: ZREM ", story), story


def test_what_the_kernel_cannot_repeat_is_told_by_its_steps(tmp_path: Path, greedy: Binding) -> None:
    (tmp_path / "fetch.lua").write_text("return redis.call('LOLWUT')")
    with open_backend("fakeredis") as backend:
        store = BoundStore(load_binding(tmp_path), backend)
        trace = Trace((Fetch(),), (b"c",), 1000, 3)
        told = str(LawViolated([Discrepancy("no-loss", "gone"), Discrepancy("expiry", "late")], trace, "Own", store))
    steps = "no-loss is violated: gone; expiry: late\n  1. fetch everything for client 'c'\n"
    assert told.startswith(steps + "  no line of Lua: the kernel cannot take the same steps: ")
