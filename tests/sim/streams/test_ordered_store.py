"""The store in memory against RocksDB, operation by operation; and RocksDB against kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orderlab.sim.streams import ordered_store
from orderlab.sim.streams.ordered_store import MemoryStore, Pair, RocksStore, View

KEYS = st.binary(min_size=1, max_size=2)
BATCHES = st.lists(st.tuples(KEYS, st.binary(max_size=2)), max_size=12)


class TwoStores(RuleBasedStateMachine):
    """Everything done to both, snapshots and open iterators kept."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.memory, self.rocks = MemoryStore(), RocksStore(Path(self.place.name) / "db")
        self.views: list[tuple[View, View]] = []
        self.iterators: list[tuple[Iterator[Pair], Iterator[Pair]]] = []

    @rule(batch=BATCHES)
    def put(self, batch: list[Pair]) -> None:
        self.memory.put(batch)
        self.rocks.put(batch)

    @rule(start=KEYS, stop=KEYS)
    def delete_range(self, start: bytes, stop: bytes) -> None:
        self.memory.delete_range(start, stop)
        self.rocks.delete_range(start, stop)

    @rule()
    def snapshot(self) -> None:
        self.views.append((self.memory.snapshot(), self.rocks.snapshot()))

    @rule(key=KEYS)
    def seek(self, key: bytes) -> None:
        self.iterators.append((self.memory.seek(key), self.rocks.seek(key)))
        first = [list(islice(one, 1)) for one in self.iterators[-1]]
        assert first[0] == first[1]

    @rule(steps=st.integers(1, 5))
    def go_on(self, steps: int) -> None:
        for ours, theirs in self.iterators:
            assert list(islice(ours, steps)) == list(islice(theirs, steps))

    @rule(key=KEYS)
    def look_back(self, key: bytes) -> None:
        for ours, theirs in self.views:
            assert list(ours.seek(key)) == list(theirs.seek(key))
            self.iterators.append((ours.seek(key), theirs.seek(key)))

    @invariant()
    def same(self) -> None:
        assert list(self.memory.seek(b"")) == list(self.rocks.seek(b""))

    def teardown(self) -> None:
        self.iterators.clear()
        self.views.clear()
        self.rocks.close()
        self.place.cleanup()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few keys make several."""
    monkeypatch.setattr(ordered_store, "BLOCK", 2)


def test_the_two_stores_agree_on_every_operation() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        TwoStores,
        settings=settings(max_examples=15, stateful_step_count=20, deadline=None, derandomize=True, database=None),
    )  # type: ignore[no-untyped-call]


WRITER = """
import sys
from pathlib import Path
from orderlab.sim.streams.ordered_store import RocksStore
store = RocksStore(Path(sys.argv[1]))
last = [int.from_bytes(key, "big") for key, _ in store.seek(b"")]
number = len(last)
while True:
    store.put([((number + more).to_bytes(8, "big"), b"x" * 100) for more in range(3)])
    number += 3
    print(number, flush=True)
"""


def kill_writer(path: Path, after: int) -> int:
    """Keys that a writer has reported when it is killed by SIGKILL, right after its ``after``-th batch."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = list(islice(writer.stdout, after))
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.stdout.readlines()
    return int([line for line in lines if line.endswith("\n")][-1])


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_a_killed_writer_loses_nothing_that_it_reported(tmp_path: Path, kills: int) -> None:
    for after in range(1, kills + 1):
        reported = kill_writer(tmp_path / "db", after * 37 % 100 + 1)
        store = RocksStore(tmp_path / "db")
        found = [int.from_bytes(key, "big") for key, _ in store.seek(b"")]
        store.close()
        assert found == list(range(len(found))), "a hole"
        assert len(found) >= reported
        assert len(found) % 3 == 0, "a part of a batch"
