"""Flaws at one length and no other: each is found at the effort where it is due, its neighbours and lawful stores are
not accused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.contracts.session.validation.queue_at_limit import (
    SOME_FROM,
    Length,
    constants,
    is_plain,
    lengths,
    runs,
    try_lengths,
)
from orderlab.properties.validation.effort import QUICK, STANDARD
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.loader import load_binding
from tests.properties.first_found import finds
from tests.properties.session_variants import LAWFUL, Variant

LUA = Path(__file__).parents[5] / "lua"
STORES = Path(__file__).parents[3] / "stores"
WANTED = "if not (after and after >= 0"
SAVED, FILLED = "-- 6. Writes", "if filled == 5 * count then"
BROKEN = {
    Variant(
        "a queue that ends with a portion is read on",
        "fetch.lua",
        "#ids > 0 and call('HMGET', body, unpack(ids)) or {}",
        "call('HMGET', body, unpack(ids))",
        ("drain",),
    ): 1000,
    Variant(
        "a page of 256 repeats its last message",
        "fetch.lua",
        WANTED,
        f"if count == 256 and after and after > 0 then after = after - 1 end\n{WANTED}",
        ("store-order",),
    ): 256,
    Variant(
        "a batch of 100 loses its last message",
        "save.lua",
        SAVED,
        f"if alive == 100 then entries[#entries], entries[#entries - 1] = nil, nil end {SAVED}",
        ("no-loss",),
    ): 100,
    Variant(
        "a trim of 300 leaves one",
        "save.lua",
        "local gone, dropped = {}, {}",
        "local gone, dropped = {}, {}\nif excess == 300 then excess = 299 end",
        ("legal-trim",),
    ): 300,
    Variant(
        "a session of 512 ends with one field left",
        "open.lua",
        "for i = 1, #old, CHUNK do",
        "if #old == 513 then old[513] = nil end\nfor i = 1, #old, CHUNK do",
        ("no-residue",),
    ): 512,
    Variant(
        "more than 700 that expire are counted as live",
        "save.lua",
        "local sweeps = now >= soonest",
        "local sweeps = now >= soonest and size < 700",
        ("legal-trim",),
    ): 700,
    Variant(
        "a fetch is blind beyond 10,240",
        "fetch.lua",
        FILLED,
        "if filled == 5 * math.min(count, 10240) then",
        ("drain", "no-loss"),
    ): 10_241,
    Variant(
        "4,096 messages, where that number is computed",
        "fetch.lua",
        "until not more\nreturn page",
        "until not more\nif filled == 5 * 2 ^ 12 then page[filled] = 'lost' end\nreturn page",
        ("drain",),
    ): 4_096,
    Variant(
        "a trim takes all at once",
        "save.lua",
        "send('ZREM', index, members)",
        "if #members > 0 then call('ZREM', index, unpack(members)) end",
        ("no-loss", "all-or-nothing"),
    ): 10_241,
}


def name_of(variant: Variant) -> str:
    return variant.name


@pytest.mark.parametrize("variant", BROKEN, ids=name_of)
def test_a_flaw_at_one_length_is_found_there_and_its_length_is_tried_by_standard_effort(variant: Variant) -> None:
    subject, count = Subject(variant.binding()), BROKEN[variant]
    assert Length(count, QUICK if count <= 1000 else SOME_FROM) in lengths(subject)
    assert SOME_FROM <= STANDARD
    assert finds(variant.breaks, lambda findings: try_lengths(subject, findings, [count]))


def test_the_store_without_a_flaw_breaks_nothing_at_these_lengths() -> None:
    assert lawful_findings(Subject(load_binding(LUA / "session")), sorted(set(BROKEN.values()))) == {}


def lawful_findings(subject: Subject, counts: Iterable[int] = ()) -> dict[str, str]:
    """At these lengths, or at those of quick effort."""
    findings = Findings(frozenset(STORE_LAWS))
    try_lengths(subject, findings, counts or [count for count, effort in lengths(subject) if effort <= QUICK])
    return {law: known[0].text for law, known in findings.by_law.items()}


@pytest.mark.parametrize("most", [260, pytest.param(600, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", sorted(path.name for path in STORES.iterdir()))
def test_a_lawful_store_breaks_nothing_at_the_numbers_of_its_text(name: str, most: int) -> None:
    subject = Subject(load_binding(STORES / name))
    assert lawful_findings(subject, [one.messages for one in lengths(subject) if one.messages <= most]) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("variant", [one for one in LAWFUL if one.file == "fetch.lua"], ids=name_of)
def test_portions_of_another_size_are_lawful_at_their_boundaries(variant: Variant) -> None:
    assert lawful_findings(Subject(variant.binding())) == {}


def test_lengths_come_from_the_text_of_the_scripts() -> None:
    subject = Subject(Variant("", "fetch.lua", "9999999999999, 1000", "9999999999999, 0x2a0").binding())
    found = constants(subject.binding)
    assert 672 in found
    assert 65535 not in found
    early = [length.messages for length in lengths(subject) if length.effort == QUICK]
    assert {671, 672, 673, 511, 512, 513} <= set(early)


def test_a_fetch_that_gives_a_message_twice_is_not_plain() -> None:
    good, bad = (Subject(one.binding()) for one in (LAWFUL[1], next(one for one in BROKEN if "256" in one.name)))
    page = next(steps for name, steps in runs(good, 256) if name == "are a page")
    assert is_plain(good, page)
    assert not is_plain(bad, page)
