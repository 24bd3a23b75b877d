"""A store that remembers what operations do answers as one that does not: on random runs, step by step."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import (
    Acknowledge,
    Clear,
    Fetch,
    Open,
    Publication,
    Release,
    Retry,
    Save,
    Step,
    Wait,
)
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.lua_text import scale
from orderlab.sim.stores.bound import BoundStore
from orderlab.sim.stores.memo import MemoStore

LUA = Path(__file__).parents[3] / "lua"


def random_step(draw: random.Random, label: int) -> Step:
    old = draw.randint(1, max(label, 1))
    message = Publication(label + 1, b"m%d" % (label + 1), b"t", draw.choice([1, 2]), draw.choice([None, 1000, 3000]))
    fault = draw.choice([None, None, Fault("out-of-memory"), Fault("slot-migrates")])
    steps: list[Step] = [
        Save((message,), 0, draw.randrange(2), draw.choice([2, 3]), False, fault),
        Fetch(count=draw.choice([None, 1])),
        Acknowledge(old),
        Release(old),
        Retry(draw.randrange(2)),
        Wait(draw.choice([1, 999, 1000])),
        draw.choice([Clear(), Open(clean_start=True), Open()]),
    ]
    return draw.choices(steps, (6, 3, 3, 2, 2, 3, 1))[0]


@pytest.mark.parametrize("name", ["session", "pending", "specimens/published", "specimens/counter-outside-the-script"])
def test_remembering_changes_no_answer(name: str) -> None:
    binding, _ = scale(load_binding(LUA / name), 3)
    for seed in range(12):
        draw = random.Random(seed)
        plain = SessionRun(BoundStore(binding, KernelBackend(), 5000), (b"c1",))
        remembering = SessionRun(MemoStore(binding, 5000), (b"c1",))
        for _ in range(25):
            step = random_step(draw, len(plain.publications))
            one, other = plain.perform(step), remembering.perform(step)
            assert (one.result, one.discrepancies) == (other.result, other.discrepancies), (seed, step)
            assert plain.state == remembering.state
            if one.diverges:
                break


def test_going_back_is_assigning_a_number() -> None:
    store = MemoStore(load_binding(LUA / "session"), 5000)
    run = SessionRun(store, (b"c1",))
    empty, state = store.keyspace, run.state
    run.perform(Save((Publication(1, b"a"),)))
    full = store.keyspace
    assert store.frozen(full) != store.frozen(empty)
    store.keyspace, run.state = empty, state
    assert run.perform(Save((Publication(1, b"a"),))).discrepancies == []
    assert store.keyspace == full
