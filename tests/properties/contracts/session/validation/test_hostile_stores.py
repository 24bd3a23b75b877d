"""Stores that nobody would write by mistake: each ends with the verdict that it deserves, and never with a
traceback."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from orderlab.model.contracts.session.traces import Acknowledge, Fetch, Publication, Save
from orderlab.model.errors import InputError
from orderlab.model.laws import STORE_LAWS
from orderlab.model.verdict import Outcome
from orderlab.properties.contracts.session.kind import SESSION
from orderlab.properties.contracts.session.machines.on_store import machines_for
from orderlab.properties.contracts.session.subject import Prepared, Reruns, Subject
from orderlab.properties.contracts.session.validation.exploration import small_world
from orderlab.properties.contracts.session.validation.machine import cross_the_wrap, near_the_wrap
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.single_law import run_law
from orderlab.properties.contracts.session.validation.validation import validate
from orderlab.properties.contracts.session.witness.explanation import MANY, tell
from orderlab.properties.contracts.session.witness.plainer import minimise, plain_limits
from orderlab.properties.machines.tally import TALLIES
from orderlab.properties.profiles import Profile
from orderlab.properties.validation import schedule
from orderlab.properties.validation.findings import Findings
from orderlab.properties.validation.work_order import WorkOrder
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.results import Assigned, Fetched, FetchedMessage, Saved
from tests.properties.first_found import finds

LUA = Path(__file__).parents[5] / "lua"


def with_first(code: str, file: str = "save.lua") -> Binding:
    """The bundled store, one script of which does something else first."""
    binding = load_binding(LUA / "session")
    source = next(script.source for script in binding.scripts if script.name == file)
    return binding.with_sources({file: b"do " + code.encode() + b" end\n" + source})


def found_in(binding: Binding) -> Findings:
    findings = Findings(frozenset(STORE_LAWS))
    look_at(binding, findings)
    return findings


def look_at(binding: Binding, findings: Findings) -> None:
    run_scenarios(small_world(Subject(binding), findings), findings)


def breaks(binding: Binding, *laws: str) -> bool:
    return finds(laws, partial(look_at, binding))


REPLIES = {
    "nil": "return nil",
    "NaN": "return 0/0",
    "infinity": "return 1/0",
    "a huge integer": "return 2^63",
    "a thousand arrays within one another": "local t = {} for i = 1, 1000 do t = {t} end return t",
    "itself": "local t = {} t[1] = t return t",
    "an error as a status": "return {ok = 'ERR no'}",
    "an error without a text": "return {err = ''}",
    "an error of two lines": "return {err = 'a\\r\\nb'}",
}


@pytest.mark.parametrize("code", REPLIES.values(), ids=REPLIES.keys())
def test_a_reply_that_no_binding_reads_is_a_save_that_was_refused(code: str) -> None:
    assert breaks(with_first(f"if #KEYS > 0 then {code} end"), "no-loss")


REFUSED = {
    "SHUTDOWN": "redis.call('SHUTDOWN', 'NOSAVE')",
    "DEBUG": "redis.call('DEBUG', 'SLEEP', '100')",
    "CONFIG SET": "redis.call('CONFIG', 'SET', 'maxmemory', '1')",
    "REPLICAOF": "redis.call('REPLICAOF', 'localhost', '1')",
    "SUBSCRIBE": "redis.call('SUBSCRIBE', 'x')",
    "EVAL": "redis.call('EVAL', 'return 1', 0)",
    "a global": "rawset(_G, 'redis', 1)",
    "a library": "string.format = nil",
    "the environment": "getfenv(0).redis = nil",
    "arguments of its own": "ARGV = setmetatable({}, {__index = function() return '1' end})",
    "a comparison that is none": "local t = {} for i = 1, 1000 do t[i] = i end table.sort(t, function() return "
    "true end)",
}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED.keys())
def test_what_a_server_refuses_is_refused(code: str) -> None:
    assert breaks(with_first(code), "no-loss")


@pytest.mark.parametrize(
    "code",
    [
        "redis.pcall('SHUTDOWN', 'NOSAVE')",
        "redis.pcall('DEBUG', 'SEGFAULT')",
        "redis.log(redis.LOG_WARNING, string.rep('x', 1000))",
        "setmetatable({}, {__index = function() error('x') end})",
        "coroutine.wrap(function() coroutine.yield() end)()",
    ],
)
def test_what_changes_nothing_accuses_nobody(code: str) -> None:
    assert found_in(with_first(code)).by_law == {}


WITHOUT_END = {
    "a string that doubles": "local s = 'x' while true do s = s .. s end",
    "a table that grows": "local t = {} for i = 1, 1e9 do t[i] = {i} end",
    "a long text again and again": "local t = {} for i = 1, 1e4 do t[i] = string.rep('x', 100) end "
    "while true do table.concat(t) end",
    "errors that are caught": "while true do pcall(error) end",
    "no memory, swallowed": "while true do pcall(string.rep, 'x', 1e9) redis.pcall('GET', KEYS[1]) end",
    "a coroutine": "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
}


TAKING_LONG = ("a table that grows", "a long text again and again", "no memory, swallowed")
"""Until the memory that they take is too much; the kernel's own tests have them too
(tests/sim/redis/test_sandbox.py)."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.exhaustive) if one in TAKING_LONG else one for one in WITHOUT_END]
)
def test_what_does_not_end_is_not_bounded(name: str) -> None:
    assert breaks(with_first(f"if #ARGV > 5 then {WITHOUT_END[name]} end"), "bounded")


def test_a_flush_is_found_as_work_on_everybodys_keys() -> None:
    assert breaks(with_first("redis.call('FLUSHALL')"), "no-loss", "no-phantom")


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("redis.call('PFDEBUG', 'ENCODING', KEYS[1])", "PFDEBUG"),
        ("redis.pcall('PFSELFTEST')", "PFSELFTEST"),
    ],
)
def test_a_command_that_the_kernel_lacks_is_named_and_nobody_is_accused(code: str, named: str) -> None:
    with pytest.raises(InputError, match=rf"store.toml: its scripts call {named}\b.*cannot be judged") as raised:
        SESSION.validate(with_first(code), WorkOrder(0.1, laws=["no-loss"]))
    assert str(raised.value).count("does not implement") == 1


# -- what is given up, what is made short, what is told
# ------------------------------------------------------------------


def test_an_analysis_whose_scripts_take_too_long_is_given_up_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "INSTRUCTIONS", 20_000_000)
    slow = with_first("for i = 1, 1.5e6 do end")
    found = validate(slow, WorkOrder(0.01, laws=["no-loss", "bounded"]))
    given_up = [gap for gap in found.gaps if "not finished, the scripts are too slow" in gap]
    assert {gap.split(":")[0] for gap in given_up} >= {"scenarios", "exploration"}
    assert not any(result.outcome is Outcome.VIOLATED for result in found.results)


def test_a_witness_has_a_limit_that_does_not_matter_unless_it_does() -> None:
    binding = load_binding(LUA / "specimens" / "published")
    small, large = Subject(binding).scaled(3), Subject(binding)
    assert plain_limits(small) == (3, 2, 1)
    assert plain_limits(large) == (100, 3, 2, 1)
    fixed = binding.store.fixed.model_copy(update={"limit": 7})
    assert plain_limits(Subject(binding.with_store(binding.store.model_copy(update={"fixed": fixed})))) == ()
    bundled = load_binding(LUA / "session")
    source = next(script.source for script in bundled.scripts if script.name == "save.lua")
    refuses = b"if epoch == 1 and limit == 57 then return redis.error_reply('ERR no') end\nlocal time = call('TIME')"
    odd = Subject(bundled.with_sources({"save.lua": source.replace(b"local time = call('TIME')", refuses, 1)}))
    steps = (Save((Publication(1, b"m1"),), limit=56), Save((Publication(2, b"m2"),), limit=57))
    short = minimise(odd.trace(steps, (b"c",)), "no-loss", Reruns(odd))
    assert [step.limit for step in short.steps if isinstance(step, Save)] == [57]
    fetch = next(script.source for script in bundled.scripts if script.name == "fetch.lua")
    takes = b"until not more\nfor i = 1, #page, 5 do call('ZREM', index, page[i]) end\n"
    lost = Subject(bundled.with_sources({"fetch.lua": fetch.replace(b"until not more\n", takes, 1)}))
    short = minimise(lost.trace((*steps, Fetch(), Acknowledge(1)), (b"c",)), "no-loss", Reruns(lost))
    assert [step.limit for step in short.steps if isinstance(step, Save)] == [100]


def test_large_answers_are_told_briefly() -> None:
    saved = Saved(tuple(Assigned(number, number) for number in range(1, 901)))
    fetched = Fetched(tuple(FetchedMessage(payload=b"m%d" % n, packet_id=n) for n in range(1, 901)))
    for told in (tell(saved), tell(fetched)):
        assert f"and {900 - MANY + 1:,} more" in told
        assert len(told) < 300
    assert "more" not in tell(Saved(saved.assigned[:MANY]))


def test_a_store_with_another_modulus_goes_round_at_it() -> None:
    """65534 identifiers: its own literals are scaled, and what goes round one too late is found on the whole store."""
    binding = load_binding(Path(__file__).parents[3] / "stores" / "packed")
    source = next(script.source for script in binding.scripts if script.name == "save.lua")
    store = binding.store.model_copy(update={"modulus": 65534})
    right = binding.with_store(store).with_sources({"save.lua": source.replace(b"65535", b"65534")})
    assert found_in(right).by_law == {}
    late = right.with_sources({"save.lua": source.replace(b"limit > 65535", b"limit > 65534")})
    findings, subject = Findings(frozenset(STORE_LAWS)), Subject(late)
    cross_the_wrap(Prepared(subject, near_the_wrap(subject)), findings)
    assert "packet identifier 65535, which is not in 1..65534" in findings.by_law["packet-id"][0].text


@pytest.mark.parametrize(("first", "broken"), [(1, False), (3, True)])
def test_a_reply_in_json_tells_of_each_message(tmp_path: Path, first: int, broken: bool) -> None:
    """As one in columns does: a broker that is not told of a message never sends it."""
    folder = shutil.copytree(LUA / "session", tmp_path / "told-in-json")
    toml, script = folder / "store.toml", folder / "save.lua"
    columns = 'shape = "pairs", columns = ["packet_id", "sequence"]'
    assert columns in toml.read_text()
    toml.write_text(toml.read_text().replace(columns, 'shape = "json", fields = { packet_id = "p", sequence = "s" }'))
    rows = f"""local rows = {{}}
for i = {first}, #reply, 2 do
  rows[#rows + 1] = {{p = reply[i], s = reply[i + 1]}}
end
return cjson.encode(rows)
"""
    head, _, tail = script.read_text().rpartition("return reply")
    script.write_text(
        head.replace("    return reply\n", "    " + rows.replace("\n", "\n    ").rstrip(" ")) + rows + tail
    )
    assert ("packet-id" in found_in(load_binding(folder)).by_law) == broken


def test_a_law_is_put_to_every_machine_although_some_scripts_do_not_end() -> None:
    endless = with_first("while true do end", "acknowledge.lua")
    TALLIES.clear()  # else those of earlier tests count
    found = run_law(endless, "retransmission", Profile("dev", 1, 2), 0)
    assert (found.outcome, len(found.tallies)) == ("holds", len(machines_for("retransmission")))
