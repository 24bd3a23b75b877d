"""The system around a real store: known-good, known-bad, and its shortcuts held against doing without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orderlab.model.contracts.session.contract import BUDGETS, Scope, message, save
from orderlab.model.errors import InputError
from orderlab.model.explorer.exploration import Exploration, explore
from orderlab.model.explorer.search import Options, search
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.exploration.catalogue import Parameters, explored
from orderlab.properties.contracts.session.exploration.system import StoreExploration
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.exploration import CLIENT, fitted
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding

LUA = Path(__file__).parents[5] / "lua"
SMALL = {"messages": 3, "crashes": 1, "lost_replies": 1, "script_flush": 1}


def of(binding: Binding, given: dict[str, Any], **options: Any) -> StoreExploration:
    quiet = dict.fromkeys(BUDGETS, 0)
    return explored(binding, Parameters(**{"path": "-", **quiet, **given}), **options)


def system(path: str = "session", scope: dict[str, Any] = SMALL, law: str = "all", **options: Any) -> StoreExploration:
    return of(load_binding(LUA / path), {**scope, "law": law}, **options)


def outcomes(found: Exploration) -> dict[str, Outcome]:
    return {verdict.law: verdict.outcome for verdict in found.verdicts}


def violated(found: Exploration) -> set[str]:
    return {law for law, outcome in outcomes(found).items() if outcome is Outcome.VIOLATED}


# -- known-good --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "states", "transitions"),
    [
        (SMALL, 6_401, 32_526),
        ({"messages": 2, "expiries": 2, "clears": 1}, 1_683, 6_508),
        ({"messages": 2, "qos": "2", "duplicates": 1, "errors": 1}, 480, 4_767),
        ({"writers": 2, "readers": 2, "messages": 3, "modulus": 2, "lost_replies": 1}, 2_279, 12_158),
    ],
    ids=["crashes", "expiries", "errors", "two readers"],
)
def test_the_session_store_keeps_every_law(scope: dict[str, Any], states: int, transitions: int) -> None:
    found = explore(system(scope=scope))
    assert found.complete
    assert set(outcomes(found).values()) == {Outcome.HOLDS}
    assert (found.distinct_states, found.transitions) == (states, transitions)


# -- known-bad ---------------------------------------------------------------------------------------------------------

FLAWED = [
    ("counter-in-a-key-that-goes", {"messages": 2, "clears": 1}, {"counter", "packet-id"}),
    ("counter-outside-the-script", {"messages": 2}, {"counter", "packet-id"}),
    ("counter-expires", {"messages": 2, "expiries": 2}, {"counter"}),
    ("expire-on-the-queue", {"messages": 2, "expiries": 1}, {"expiry"}),
    ("fetch-removes", {"messages": 2}, {"no-loss"}),
    ("ghosts-count-against-the-limit", {"messages": 3, "expiries": 1}, {"legal-trim", "no-loss"}),
    ("identifier-reused-while-live", {"messages": 3, "modulus": 2}, {"packet-id", "no-loss"}),
    ("late-acknowledgement", {"messages": 3, "modulus": 2}, {"packet-id"}),
    ("published", {"messages": 2, "lost_replies": 1}, {"all-or-nothing"}),
    ("reference-removed-first", {"messages": 2, "qos": "2", "errors": 1}, {"all-or-nothing", "no-loss"}),
    ("score-is-packet-id", {"messages": 3, "modulus": 2}, {"store-order"}),
    ("session-begun-by-save", {"messages": 2, "clears": 1}, {"no-phantom", "no-residue"}),
]


@pytest.mark.parametrize(("specimen", "scope", "laws"), FLAWED, ids=[name for name, _, _ in FLAWED])
def test_a_specimen_is_found_out(specimen: str, scope: dict[str, Any], laws: set[str]) -> None:
    found = [explore(system(f"specimens/{specimen}", scope, law=law)) for law in sorted(laws)]
    assert set().union(*map(violated, found)) == laws
    for one in found:
        witness = next(verdict.witness for verdict in one.verdicts if verdict.outcome is Outcome.VIOLATED)
        assert 1 <= len(witness.steps) == one.depth


@pytest.mark.parametrize("scope", [scope for _, scope, _ in FLAWED[:3]])
def test_its_nearest_neighbour_is_not(scope: dict[str, Any]) -> None:
    assert violated(explore(system(scope=scope))) == set()


# -- failover ----------------------------------------------------------------------------------------------------------


def test_no_script_can_keep_every_law_through_a_failover() -> None:
    found = explore(system(scope={"messages": 2, "failover": 1}))
    assert found.complete, "what the fault breaks does not end the search"
    assert violated(found) == {f"{law} after failover" for law in ("no-loss", "packet-id", "counter")}


def test_without_failover_no_such_law_is_judged() -> None:
    assert not any("failover" in law for law in outcomes(explore(system(scope={"messages": 1}))))


# -- shortcuts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [pytest.param("session", marks=pytest.mark.exhaustive), "specimens/counter-in-a-key-that-goes"]
)
@pytest.mark.parametrize("messages", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_remembering_changes_nothing(path: str, messages: int) -> None:
    scope = {"messages": messages, "lost_replies": 1, "clears": 1}
    with_memory, without = (explore(system(path, scope, remembers=choice)).to_json() for choice in (True, False))
    for found in (with_memory, without):
        del found["run"]
    assert with_memory == without


@pytest.mark.parametrize("path", ["session", "specimens/identifier-reused-while-live"])
@pytest.mark.parametrize("more", [{}, {"failover": 1, "script_flush": 1}, {"lost_replies": 1, "duplicates": 1}])
def test_symmetry_keeps_one_state_of_each_orbit(path: str, more: dict[str, int]) -> None:
    scope = dict(writers=2, readers=2, messages=3 if not more else 2, modulus=2, **more)
    whole, reduced = system(path, scope), system(path, scope)
    every = search(whole, Options())
    orbits = search(reduced, Options(symmetry=True))
    assert orbits.violated() == every.violated()
    assert orbits.depth == every.depth
    assert orbits.space.count < every.space.count
    assert orbits.space.count == len({whole.canonical(every.space.state(n)) for n in range(every.space.count)})


@pytest.mark.parametrize("path", ["session", "pending"])
def test_names_given_as_they_come_reach_what_fixed_names_reach(path: str) -> None:
    """Messages and writers are named as they come by `explore store`, and beforehand by the scopes of validation."""
    ours = system(path, {"messages": 4, "modulus": 3})
    programs = tuple(tuple(save(one, message(one + 2 * at + 1)) for at in range(2)) for one in range(2))
    small = Subject(load_binding(LUA / path), remembers=True).scaled(3)
    theirs = StoreExploration(small.memo, small.run((CLIENT,)), fitted(Scope("named", programs), small))
    reached = []
    for one in (ours, theirs):
        done = search(one, Options())
        assert done.complete
        states = map(done.space.state, range(done.space.count))
        reached.append({shape(one.effects.cores[state[0]].account) for state in states})
    assert reached[0] == reached[1]


def shape(account: Any) -> tuple[Any, ...]:
    return tuple((entry.packet_id, entry.sent) for entry in account.queue), account.last_ids


def test_a_store_whose_sessions_share_a_key_has_one_reader_only(tmp_path: Path) -> None:
    text = (LUA / "session" / "store.toml").read_text().replace('"{s:<client>}:b"', '"{s}:b"')
    (tmp_path / "store.toml").write_text(text.replace('"{s:<client>}:i"', '"{s}:i"'))
    for script in (LUA / "session").glob("*.lua"):
        (tmp_path / script.name).write_bytes(script.read_bytes())
    binding = load_binding(tmp_path)
    with pytest.raises(InputError, match=r"does not bear the client's name.*--set readers=1"):
        explore(of(binding, {**SMALL, "readers": 2}))
    assert violated(explore(of(binding, {"messages": 2}))) == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("trouble", "states"), [({}, 112_598), ({"lost_replies": 1}, 752_074)], ids=["no trouble", "a lost reply"]
)
def test_three_writers_two_readers_and_six_messages(trouble: dict[str, int], states: int) -> None:
    scope = dict(writers=3, readers=2, messages=6, **trouble)
    found = explore(system(scope=scope), Options(symmetry=True))
    assert found.complete
    assert set(outcomes(found).values()) == {Outcome.HOLDS}
    assert found.distinct_states == states
