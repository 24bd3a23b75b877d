"""Validation: never an accusation of a correct store whatever its design, and each analysis finds what it is there
for."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

import pytest

from orderlab.model.contracts.session.contract import BY_LAW, SCOPES, SessionTerms
from orderlab.model.contracts.session.traces import Acknowledge, Churn, Fetch, Publication, Quiesce, Save, Step, Wait
from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.subject import Prepared, Reruns, Subject
from orderlab.properties.contracts.session.validation import footprint
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted, small_world
from orderlab.properties.contracts.session.validation.footprint import measure_footprint
from orderlab.properties.contracts.session.validation.machine import machine_for, run_examples
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.validation import SessionValidation, validate
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.contracts.session.witness.full_scale import at_full_scale, with_fewer_steps
from orderlab.properties.contracts.session.witness.plainer import minimise
from orderlab.properties.validation.effort import QUICK
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.specimens import find_specimens
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.lua_text import scale
from orderlab.sim.stores.binding.session import Store
from orderlab.sim.stores.bound import BudgetExceeded
from tests.properties.first_found import finds

LUA = Path(__file__).parents[5] / "lua"
OTHER_DESIGNS = Path(__file__).parents[3] / "stores"
CORRECT = {
    "session": LUA / "session",
    "pending": LUA / "pending",
    **{path.name: path for path in sorted(OTHER_DESIGNS.iterdir())},
}


def everything() -> Findings:
    return Findings(frozenset(STORE_LAWS))


def told(findings: Findings) -> dict[str, str]:
    return {law: f"{found[0].text}: {found[0].trace.steps}" for law, found in findings.by_law.items()}


@pytest.mark.parametrize(("states", "walks"), [(40, 10), pytest.param(400, 100, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_store_of_any_design_is_never_accused(name: str, states: int, walks: int) -> None:
    binding = load_binding(CORRECT[name])
    findings = everything()
    small = small_world(Subject(binding), findings)
    run_scenarios(small, findings)
    for scope in SCOPES:
        if applies(scope, small):
            explore_scope(small, fitted(scope, small), findings, states=states)
    walk_about(small, findings, walks)
    place = Prepared(Subject(binding), ())
    run_examples(machine_for(place, findings, lambda: False), 1)
    assert told(findings) == {}


@pytest.mark.parametrize("name", ["session", "pending"])
def test_scenarios_put_every_law_to_the_test(name: str) -> None:
    binding = load_binding(CORRECT[name])
    findings = everything()
    run_scenarios(small_world(Subject(binding), findings), findings)
    wanted = {
        situation.name
        for law, situations in BY_LAW.items()
        for situation in situations
        if law not in ("one-slot", "bounded") and all(need in binding.operations for need in situation.needs)
    }
    assert {name for name in wanted if not findings.coverage[name]} == set()


SEEN_LATER = ("published",)
"""All others are caught with a tenth of the least effort that has a name."""


GO_ROUND = ("counter-expires", "identifier-reused-while-live", "late-acknowledgement", "score-is-packet-id")
"""Of 65,535 identifiers all are taken for their witnesses, most of the time; that such are made is tried below, and
here in the exhaustive run."""


@pytest.mark.parametrize("name", GO_ROUND)
def test_a_specimen_of_identifiers_is_caught_in_the_small_world(name: str) -> None:
    binding, findings = load_binding(LUA / "specimens" / name), everything()
    assert binding.specimen is not None
    small = small_world(Subject(binding), findings)
    run_scenarios(small, findings)
    if name == "counter-expires":  # no scenario waits for that
        walk_about(small, findings, 10)
    assert set(binding.specimen.breaks) <= set(findings.by_law)


@pytest.mark.parametrize(
    "binding",
    [pytest.param(one, marks=[pytest.mark.exhaustive] if one.name in GO_ROUND else []) for one in find_specimens()],
    ids=lambda binding: binding.name,
)
def test_every_specimen_is_caught_by_the_laws_that_it_breaks(binding: Binding) -> None:
    assert binding.specimen is not None
    found = validate(
        binding,
        WorkOrder(QUICK if binding.name in SEEN_LATER else QUICK / 10, laws=binding.specimen.breaks, only_first=True),
    )
    assert {result.verdict.law: result.outcome for result in found.results} == dict.fromkeys(
        binding.specimen.breaks, Outcome.VIOLATED
    )


def test_undeclared_keys_are_told_as_a_pattern_however_the_client_is_spelt() -> None:
    measured = measure_footprint(Subject(load_binding(CORRECT["strings"])), Findings(frozenset(["one-slot"])))
    told = measured.undeclared_patterns()
    assert set(told) == {"save", "fetch", "acknowledge", "release", "clear"}
    assert all(one == "{x<client>}:m:<n>:<n>" for keys in told.values() for one in keys), told


@pytest.mark.parametrize("condition", ["#dropped > 2", "alive > 60", "free", "excess > 400"])
def test_an_undeclared_key_of_the_same_slot_is_told_however_seldom_it_is_used(
    condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "SIZES", (1, 1000))
    monkeypatch.setattr(footprint, "CONFIGURED_LIMIT", 1000)
    binding = load_binding(LUA / "session")
    source = next(script.source for script in binding.scripts if script.name == "save.lua").decode()
    old = "-- 5. What will be written"
    assert old in source
    seldom = f"if {condition} then call('EXISTS', (string.gsub(index, ':i$', ':seldom'))) end\n{old}"
    findings = everything()
    measured = measure_footprint(
        Subject(binding.with_sources({"save.lua": source.replace(old, seldom).encode()})), findings
    )
    assert measured.undeclared_patterns().get("save") == ["{s:<client>}:seldom"]
    assert "one-slot" not in told(findings)


def test_the_footprint_of_the_bundled_store_is_declared_and_constant() -> None:
    findings = everything()
    measured = measure_footprint(Subject(load_binding(LUA / "session")), findings)
    assert told(findings) == {}
    assert not any(measured.undeclared.values())
    assert not measured.writes["fetch"]
    lengths = measured.costs["acknowledge"]
    assert 10_000 in lengths
    assert len({commands for commands, _ in lengths.values()}) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            b"local stored = call('HMGET'",
            b"call('KEYS', '*') local stored = call('HMGET'",
            r"KEYS .line \d+. works through",
        ),
        (
            b"local stored = call('HMGET'",
            b"if call('ZCARD', index) > 9000 then for i = 1, 2e5 do call('ZCARD', index) end end "
            b"local stored = call('HMGET'",
            "blocks",
        ),
        (
            b"local stored = call('HMGET'",
            b"local n = call('ZCARD', index) for i = 1, n * n / 300 do call('ZCARD', index) end "
            b"local stored = call('HMGET'",
            "more than linear|blocks",
        ),
    ],
)
def test_a_script_that_works_too_much_is_not_bounded(
    old: bytes, new: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "SIZES", (1, 1000))
    binding = load_binding(LUA / "session")
    source = next(script.source for script in binding.scripts if script.name == "acknowledge.lua")
    assert old in source
    subject = Subject(binding.with_sources({"acknowledge.lua": source.replace(old, new)}))
    assert finds(["bounded"], partial(measure_footprint, subject), said)


REUSED: tuple[Step, ...] = (
    Save((Publication(1, b"m1"),), limit=3),
    Fetch(),
    Acknowledge(1),
    Save((Publication(2, b"m2"),), producer=1, limit=3),
    Save((Publication(3, b"m3", qos=2),), limit=3),
    Fetch(count=1),
    Save((Publication(4, b"m4"),), limit=3),
    Acknowledge(1),
    Fetch(),
)


def test_a_witness_is_made_short_and_brought_to_full_scale() -> None:
    subject = Subject(load_binding(LUA / "specimens" / "published"))
    small = subject.scaled(3)
    short = minimise(small.trace(REUSED, (b"client-one",)), "packet-id", Reruns(small))
    assert len(short.steps) < len(REUSED)
    assert all(len(step.messages) == 1 for step in short.steps if isinstance(step, Save))
    large = at_full_scale(short, "packet-id", 65535, Reruns(small), Reruns(subject))
    assert large is not None
    assert large.modulus == 65535
    assert [step.count for step in large.steps if isinstance(step, Churn)] == [65532]


def test_saves_that_only_took_the_counter_round_are_messages_that_pass() -> None:
    large = Reruns(Subject(load_binding(LUA / "specimens" / "identifier-reused-while-live")))
    saves = [Save((Publication(label, b"m%d" % label),), limit=100) for label in (5, 6, 7, 8)]
    steps = (*saves[:2], Quiesce(1), saves[2], Churn(65_532), saves[3])
    found = with_fewer_steps(large.subject.trace(steps), "packet-id", large)
    first, passing, last = found.steps
    assert passing == Churn(65_534)
    assert isinstance(first, Save)
    assert isinstance(last, Save)
    assert [one.payload for step in (first, last) for one in step.messages] == [b"m1", b"m2"]
    assert large.law_broken(found, "packet-id") is not None
    without = large.subject.trace(steps[:3])
    assert with_fewer_steps(without, "packet-id", large) == without


def test_what_is_only_true_of_the_small_world_is_not_reproduced() -> None:
    subject = Subject(load_binding(LUA / "session"))
    small = Subject(load_binding(LUA / "specimens" / "published")).scaled(3)
    trace = small.trace(REUSED, (b"client-one",))
    assert at_full_scale(trace, "packet-id", 65535, Reruns(small), Reruns(subject)) is None


def test_a_fixed_limit_that_no_store_can_keep_is_an_input_error() -> None:
    binding = load_binding(LUA / "session")
    fixed = binding.store.fixed.model_copy(update={"limit": -1})
    with pytest.raises(InputError, match=r"fixed.limit: -1 is not in 1..65535"):
        validate(binding.with_store(binding.store.model_copy(update={"fixed": fixed})), WorkOrder(1))


@pytest.mark.parametrize(("limit", "promise"), [(None, "permitted"), (None, "any"), (3, "permitted")])
def test_a_verdict_says_that_no_limit_was_tried_that_a_queue_cannot_keep(limit: int | None, promise: str) -> None:
    binding = load_binding(LUA / "session")
    changed = {"fixed": binding.store.fixed.model_copy(update={"limit": limit}), "callers": {"limit": promise}}
    binding = binding.with_store(
        Store.model_validate(binding.store.model_dump(by_alias=True, exclude_none=True) | changed)
    )
    found = SessionValidation(binding, SessionTerms("session"), (), (), (), {}, 0)
    told = [one for one in found.to_json()["assumptions"] if one not in binding.assumptions]
    assert told == (
        ["no caller gives a limit that is not in 1..65,535"] if (limit, promise) == (None, "permitted") else []
    )


def test_other_messages_wait_in_the_queue_where_that_takes_the_law_to_full_scale() -> None:
    """A save that never finds an identifier: all of them are taken, in the small world by three messages."""
    binding = load_binding(LUA / "session")
    source = next(script.source for script in binding.scripts if script.name == "save.lua")
    searching = b"if not scores[i] or gone[ids[i]] then"
    assert searching in source
    mutated = binding.with_sources({"save.lua": source.replace(searching, b"if not scores[i] then")})
    small, large = Subject(mutated).scaled(3), Subject(scale(mutated, 200)[0])
    first, second, *others = (
        Save((Publication(label, b"m%d" % label, interval_ms=1000 if label == 2 else None),), limit=3)
        for label in (1, 2, 3, 4)
    )
    # The identifier that is free is that of the expired one.
    limited = (first, second, others[0], Wait(1000), others[1])
    found = at_full_scale(small.trace(limited, (b"client-one",)), "bounded", 200, Reruns(small), Reruns(large))
    assert found is not None
    assert sorted(len(step.messages) for step in found.steps if isinstance(step, Save)) == [1, 1, 1, 198]


def test_a_store_that_is_given_up_is_not_accused_of_what_it_did_not_do() -> None:
    """Scripts that do not end are met again and again; each witness still has what makes one endless."""
    binding = load_binding(LUA / "session")
    source = next(script.source for script in binding.scripts if script.name == "save.lua")
    endless = b"if #ARGV == 5 then while true do end end\nlocal epoch"
    subject = Subject(binding.with_sources({"save.lua": source.replace(b"local epoch", endless, 1)}))
    findings = everything()
    run_scenarios(small_world(subject, findings), findings)
    assert findings.by_law.keys() == {"bounded"}
    for finding in findings.by_law["bounded"]:
        assert any(isinstance(step, Save) and not step.messages for step in finding.trace.steps)


def test_what_a_scope_found_before_it_was_cut_off_is_kept_wherever_that_was() -> None:
    """The way to what was heard is found again from a search whose work is over; each cut falls in another place."""
    cut = kept = 0
    for checks in (10, 20, 40, 80, 160, 320, 640):
        findings = Findings(frozenset(STORE_LAWS))
        small = small_world(Subject(load_binding(LUA / "specimens" / "published")), findings)
        small.cpu_budget.set(checks, partial(next, count()))  # a clock that each look moves on
        try:
            explore_scope(small, fitted(SCOPES[0], small), findings, 300)
        except BudgetExceeded:
            cut += 1
            kept += bool(findings.by_law)
    assert cut
    assert kept
