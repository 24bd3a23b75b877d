"""Flaws that a handful of messages never shows: each is caught at the size where it begins, its neighbour is not."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import Clear
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.subject import Subject, take_steps
from orderlab.properties.contracts.session.validation.queue_at_limit import (
    CLIENT,
    full_queues,
    queues_at_limit,
    run_queues_at_limit,
)
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.first_found import finds
from tests.properties.session_variants import LAWFUL, Variant

LUA = Path(__file__).parents[5] / "lua"
DESIGNS = Path(__file__).parents[3] / "stores"
BROKEN = (
    Variant(
        "a portion of a clean start is one short",
        "open.lua",
        "i + CHUNK - 1, #old",
        "i + CHUNK - 2, #old",
        ("no-residue",),
    ),
    Variant(
        "a portion of the content is one short",
        "save.lua",
        "i + CHUNK - 1, #values",
        "i + CHUNK - 3, #values",
        ("no-loss",),
    ),
    Variant("everything is handed over at once", "save.lua", "6000, 512", "60000, 512", ("no-loss", "all-or-nothing")),
    Variant(
        "a sweep that stops early takes the rest for live",
        "save.lua",
        "'WITHSCORES', 'LIMIT', #due, 1)",
        "'WITHSCORES', 'LIMIT', 0, 0)",
        ("legal-trim",),
    ),
    Variant(
        "expired messages are in the way of identifiers",
        "save.lua",
        "meets and size or math.max(excess, SWEEP)",
        "math.max(excess, SWEEP)",
        ("counter",),
    ),
    Variant(
        "a page ends with the first portion",
        "fetch.lua",
        "local more = #ids == size",
        "local more = #ids == size and size < 1000",
        ("no-loss", "drain"),
    ),
)
SLOWLY_BROKEN = (
    Variant(
        "a trim takes one portion at most",
        "save.lua",
        "until stays or #ids == 0",
        "until true",
        ("legal-trim", "no-loss"),
    ),
)
LAWFUL_IN_PORTIONS = [
    one for one in LAWFUL if one.name in ("sweeps one at a time", "sweeps everything", "looks at seven at a time")
]


SHOWN_BY = {
    "a portion of a clean start is one short": "a session ends with many",
    "a portion of the content is one short": "many expire behind one that stays",
    "everything is handed over at once": "many go at once",
    "a sweep that stops early takes the rest for live": "many expire behind one that stays",
    "a page ends with the first portion": "many expire before some that stay, and the session ends with many",
}
"""The one of the queues that shows a flaw soonest; without one it takes the search from its beginning."""


def is_caught(variant: Variant) -> bool:
    return finds(variant.breaks, partial(run_queues_at_limit, Subject(variant.binding())))


def name_of(variant: Variant) -> str:
    return variant.name


@pytest.mark.parametrize("variant", BROKEN, ids=name_of)
def test_what_breaks_in_a_queue_at_its_limit_is_caught(variant: Variant) -> None:
    if variant.name not in SHOWN_BY:
        assert is_caught(variant)
        return
    subject = Subject(variant.binding())
    name, steps = next(one for one in queues_at_limit(subject) if one[0] == SHOWN_BY[variant.name])
    assert finds(variant.breaks, lambda findings: take_steps(subject, subject.run((CLIENT,)), steps, findings, name))


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", BROKEN, ids=name_of)
def test_the_whole_search_catches_it_as_well(variant: Variant) -> None:
    assert is_caught(variant)


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", SLOWLY_BROKEN, ids=name_of)
def test_what_breaks_in_a_queue_at_its_limit_is_caught_late(variant: Variant) -> None:
    assert is_caught(variant)


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", LAWFUL_IN_PORTIONS, ids=name_of)
def test_portions_of_another_size_are_lawful(variant: Variant) -> None:
    findings = Findings(frozenset(STORE_LAWS))
    run_queues_at_limit(Subject(variant.binding()), findings)
    assert {law: found[0].text for law, found in findings.by_law.items()} == {}


@pytest.mark.parametrize(("last", "broken"), [("498", {"no-residue"}), ("499", set())])
def test_the_end_of_a_session_with_more_messages_than_go_at_once(last: str, broken: set[str]) -> None:
    binding = load_binding(Path(__file__).parents[3] / "stores" / "by-reference")
    source = next(script.source for script in binding.scripts if script.name == "clear.lua")
    before, call, after = source.partition(b"redis.call('DEL', unpack(members, i, math.min(i + 499")
    assert call
    binding = binding.with_sources({"clear.lua": before + call[:-3] + last.encode() + after})
    findings, subject = Findings(frozenset(["no-residue"])), Subject(binding)
    name, steps = next(one for one in queues_at_limit(subject) if Clear() in one[1])
    take_steps(subject, subject.run((CLIENT,)), steps, findings, name)
    assert findings.by_law.keys() == broken


def full(binding: Binding, runs: int = 2) -> Findings:
    """The full queues alone, with 500 identifiers."""
    findings = Findings(frozenset(STORE_LAWS))
    twin = Subject(binding).scaled(500, remembers=False)
    for name, steps in [*full_queues(twin)][:runs]:
        take_steps(twin, twin.run((CLIENT,)), steps, findings, name)
    return findings


@pytest.mark.parametrize("name", ["session", "pending"])
def test_a_store_that_makes_room_before_it_looks_for_an_identifier_is_bounded(name: str) -> None:
    assert full(load_binding(LUA / name)).by_law == {}


def test_a_search_for_an_identifier_that_does_not_end_in_a_full_queue_is_found() -> None:
    """Room is made for one more than the limit, so every identifier is taken when the limit is as many as there are."""
    old, new = ">= limit do", "> limit do"
    binding = load_binding(DESIGNS / "strings")
    source = next(script.source for script in binding.scripts if script.name == "save.lua").decode()
    assert source.count(old) == 1
    assert full(binding.with_sources({"save.lua": source.replace(old, new).encode()}), 1).by_law.keys() == {"bounded"}
