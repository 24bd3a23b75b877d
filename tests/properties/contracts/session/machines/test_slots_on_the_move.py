"""A store on a cluster: slots move in every phase, masters fail. What stops midway is found, what is declared is
not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orderlab.properties.contracts.session.machines.store import LawViolated
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.single_law import search
from orderlab.properties.machines.tally import tally_of
from orderlab.properties.profiles import Profile
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.laboratory.cluster_store import MASTERS, ServerCluster
from tests.laboratory.live_cluster import ClusterProcess
from tests.laboratory.slots_on_the_move import on_cluster

LUA = Path(__file__).parents[5] / "lua"
SHORT = Profile("short", 25, 30)
COUNTING = "call('INCR', KEYS[3] or (string.gsub(index, ':i$', ':n')))\nsend('ZADD', index, entries)"


def small(binding: Binding) -> Subject:
    return Subject(binding).scaled(3, remembers=False)


def counting(tmp_path: Path, declared: bool) -> Binding:
    """lua/session with a third key that counts the saves: undeclared, or declared and there from the beginning."""
    for file in (LUA / "session").iterdir():
        text = file.read_text()
        if file.name == "save.lua":
            text = text.replace("send('ZADD', index, entries)", COUNTING)
        elif declared and file.name == "store.toml":
            text = text.replace('body = "{s:<client>}:b"', 'body = "{s:<client>}:b"\nsaves = "{s:<client>}:n"')
            text = text.replace('keys = ["index", "body"]', 'keys = ["index", "body", "saves"]')
        elif declared and file.name == "open.lua":
            text = text.replace("call('ZADD', index, 0, '0')", "call('ZADD', index, 0, '0')\ncall('SET', KEYS[3], '0')")
        elif declared and file.name == "clear.lua":
            text = text.replace("index, body)", "index, body, KEYS[3])")
        (tmp_path / file.name).write_text(text)
    return load_binding(tmp_path)


def line_of(folder: Path, text: str) -> int:
    """Where it begins in the script of saves."""
    return (folder / "save.lua").read_text().split(text)[0].count("\n") + 1


@pytest.mark.parametrize("store", ["session", "pending"])
def test_a_store_that_declares_its_keys_holds_and_every_phase_comes_about(store: str) -> None:
    name = f"Moving_{store}"
    assert search(on_cluster(small(load_binding(LUA / store)), name), SHORT, 1, None, False) is None
    tally = tally_of(name)
    phases = {"slot begins to move", "keys move", "slot arrives", "slot returns", "failover", "save / slot-migrates"}
    assert phases <= tally.steps.keys(), phases - tally.steps.keys()
    met = {"the cluster says MOVED", "the cluster says ASK", "the cluster says TRYAGAIN", "the cluster says NOSCRIPT"}
    met |= {"a failover loses operations", "an operation while its slot moves", "a lost reply is followed by a retry"}
    assert met <= tally.coverage.keys(), met - tally.coverage.keys()
    assert "a script stopped at a key that is not there" not in tally.coverage


def test_a_key_that_is_not_declared_stops_a_script_midway(tmp_path: Path) -> None:
    laws = frozenset(["all-or-nothing"])
    machine = on_cluster(small(counting(tmp_path, declared=False)), "Undeclared", laws=laws)
    found = search(machine, SHORT, 1, None)
    assert found is not None
    violation, blob = found
    assert isinstance(violation, LawViolated)
    assert "a failed operation changed {s:c}:b" in str(violation)
    told = [line.strip() for line in str(violation).splitlines()]
    index_counted = "call('INCR', KEYS[3] or (string.gsub(index, ':i$', ':n')))"
    assert told[-2].endswith(f"save.lua:{line_of(tmp_path, COUNTING)}: {index_counted}")
    assert re.match(r"written before it failed: .*save\.lua:\d+: HSET \{s:c\}:b ", told[-1]), told[-1]
    assert told[-6:-2] == [
        "1. client b'c'",
        "2. fetch of client 0",
        "3. the slot of client 0 begins to move",
        "4. producer 0 saves m1 for client 0, limit 3, while its slot moves",
    ]
    assert blob.startswith("@reproduce_failure(")


def test_the_same_key_declared_stops_nothing(tmp_path: Path) -> None:
    machine = on_cluster(small(counting(tmp_path, declared=True)), "Declared")
    assert search(machine, Profile("few", 10, 30), 1, None, False) is None


def test_keys_of_two_slots_are_refused_by_any_cluster() -> None:
    subject = small(load_binding(LUA / "specimens" / "client-breaks-the-hash-tag"))
    found = search(on_cluster(subject, "TwoSlots"), SHORT, 1, None)
    assert found is not None
    assert {one.law for one in found[0].discrepancies} == {"one-slot"}
    assert len(found[0].steps) == 1


@pytest.mark.server
@pytest.mark.exhaustive
def test_it_runs_on_a_real_cluster() -> None:
    with ClusterProcess(MASTERS) as masters:
        cluster = ServerCluster(masters)

        def emptied() -> object:
            cluster.flush()
            return cluster

        subject = Subject(load_binding(LUA / "session"))
        machine = on_cluster(subject, "MovingForReal", emptied)  # type: ignore[arg-type]
        assert search(machine, Profile("few", 10, 15), 1, None, False) is None
    assert {"slot begins to move", "keys move"} <= tally_of("MovingForReal").steps.keys()
