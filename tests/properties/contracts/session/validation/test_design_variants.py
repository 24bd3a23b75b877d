"""Stores of other designs with one flaw each: found by a law that it breaks, whatever the layout."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.subject import Prepared, Subject
from orderlab.properties.contracts.session.validation.exploration import small_world
from orderlab.properties.contracts.session.validation.machine import cross_the_wrap, near_the_wrap, run_machine
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.binding.session import Store
from tests.properties.first_found import finds

DESIGNS = Path(__file__).parents[3] / "stores"


class Flaw(NamedTuple):
    """One edit of one script of one store, and a law that it breaks."""

    store: str
    name: str
    file: str
    old: str
    new: str
    breaks: str

    def binding(self) -> Binding:
        """The store with the edit, wherever the old text stands."""
        binding = load_binding(DESIGNS / self.store)
        source = next(script.source for script in binding.scripts if script.name == self.file)
        assert self.old.encode() in source, self.name
        return binding.with_sources({self.file: source.replace(self.old.encode(), self.new.encode())})


P, T, F, R, M, H = "packed", "two-lists", "functions", "by-reference", "as-members", "one-hash"
NUL = "told, ARGV[i + 2], (string.gsub(ARGV[i + 3], '%z.*', ''))}"
LATIN = "told, ARGV[i + 2], (string.gsub(ARGV[i + 3], '[^%z\\1-\\127]', '?'))}"
FLAWS = (
    Flaw(
        P,
        "no identifier 1 after the wrap",
        "save.lua",
        "s.l = s.l % 65535 + 1",
        "s.l = s.l == 65535 and 2 or s.l + 1",
        "packet-id",
    ),
    Flaw(
        P,
        "second pages begin one late",
        "fetch.lua",
        "m[2] > after and",
        "m[2] > after + (after > 0 and 1 or 0) and",
        "store-order",
    ),
    Flaw(
        P,
        "third pages begin one late",
        "fetch.lua",
        "m[2] > after and",
        "m[2] > after + (after > 2 and 1 or 0) and",
        "drain",
    ),
    Flaw(
        P,
        "a repeated save is told of the last message only",
        "save.lua",
        "return seen[2] end",
        "return {s.l, s.s} end",
        "all-or-nothing",
    ),
    Flaw(
        P,
        "a repeated save is known only while messages wait",
        "save.lua",
        "if batch == seen[1] then",
        "if batch == seen[1] and #s.q > 0 then",
        "all-or-nothing",
    ),
    Flaw(P, "returned in the millisecond of the deadline", "fetch.lua", "m[3] > now)", "m[3] >= now)", "expiry"),
    Flaw(P, "gone a millisecond early", "fetch.lua", "m[3] > now)", "m[3] > now + 1)", "expiry"),
    Flaw(P, "a millisecond too much is left", "fetch.lua", "m[3] - now or", "m[3] - now + 1 or", "expiry"),
    Flaw(P, "the highest limit is refused", "save.lua", "limit > 65535", "limit >= 65535", "no-loss"),
    Flaw(
        P,
        "epochs of a save are compared as text",
        "save.lua",
        "if epoch < s.e",
        "if ARGV[1] < tostring(s.e)",
        "no-phantom",
    ),
    Flaw(
        P,
        "epochs of an answer are compared as text",
        "answer.lua",
        "if tonumber(ARGV[1]) < s.e",
        "if ARGV[1] < tostring(s.e)",
        "retransmission",
    ),
    Flaw(
        P,
        "epochs of a clear are compared as text",
        "clear.lua",
        "if tonumber(ARGV[1]) < s.e",
        "if ARGV[1] < tostring(s.e)",
        "no-loss",
    ),
    Flaw(
        P,
        "epochs of a CONNECT are compared as text",
        "open.lua",
        "if s and e < s.top",
        "if s and ARGV[1] < tostring(s.top)",
        "no-residue",
    ),
    Flaw(
        P, "batches are compared as text", "save.lua", "if batch < seen[1]", "if ARGV[5] < tostring(seen[1])", "no-loss"
    ),
    Flaw(
        P,
        "a page begins behind a token taken for text",
        "fetch.lua",
        "m[2] > after and",
        "(after == 0 or tostring(m[2]) > ARGV[2]) and",
        "drain",
    ),
    Flaw(P, "a payload ends at its first NUL", "save.lua", "told, ARGV[i + 2], ARGV[i + 3]}", NUL, "no-loss"),
    Flaw(P, "a payload is taken for ASCII", "save.lua", "told, ARGV[i + 2], ARGV[i + 3]}", LATIN, "no-loss"),
    Flaw(
        P,
        "a payload has 65,535 bytes at most",
        "save.lua",
        "ARGV[i + 2], ARGV[i + 3]}",
        "ARGV[i + 2], string.sub(ARGV[i + 3], 1, 2^16 - 1)}",
        "no-loss",
    ),
    Flaw(
        P,
        "an empty payload is no message",
        "save.lua",
        "if interval and deadline <= now",
        "if ARGV[i + 3] == '' or interval and deadline <= now",
        "no-loss",
    ),
    Flaw(P, "the payload is told as the topic", "fetch.lua", "m[5], m[7], m[8]", "m[5], m[8], m[8]", "no-phantom"),
    Flaw(P, "producers share one mark", "save.lua", "s.p[ARGV[4]]", "s.p.x", "no-loss"),
    Flaw(P, "answers of a lap ago count", "answer.lua", "m[2] == seq", "m[2] % 65535 == seq % 65535", "packet-id"),
    Flaw(
        P,
        "a PUBREC of an earlier session counts",
        "answer.lua",
        "if tonumber(ARGV[1]) < s.e",
        "if ARGV[4] == 'ack' and tonumber(ARGV[1]) < s.e",
        "retransmission",
    ),
    Flaw(
        P,
        "a CONNECT that comes again wipes the queue",
        "open.lua",
        "if s and e == s.top then",
        "if s and e == s.top and #s.q == 0 then",
        "all-or-nothing",
    ),
    Flaw(
        T,
        "what is handed out comes in reverse",
        "fetch.lua",
        "redis.call('RPUSH', f, text)",
        "redis.call('LINSERT', f, 'AFTER', '-', text)",
        "store-order",
    ),
    Flaw(
        T,
        "a release goes to the end",
        "answer.lua",
        "redis.call('LSET', KEYS[k], i, cjson.encode(one))",
        "redis.call('LREM', KEYS[k], 1, text) redis.call('RPUSH', KEYS[k], cjson.encode(one))",
        "store-order",
    ),
    Flaw(
        F,
        "an answer of an earlier session counts",
        "sessions.lua",
        "if not begun or tonumber(args[1]) < tonumber(begun) then return 0 end\n  if not",
        "if not begun then return 0 end\n  if not",
        "packet-id",
    ),
    Flaw(
        "listed",
        "a clean start deletes the hash that it goes on to write",
        "open.lua",
        "redis.call('HSET', KEYS[2],",
        "redis.call('DEL', KEYS[2]) redis.call('HSET', KEYS[2],",
        "no-loss",
    ),
    Flaw(
        R,
        "an interval beyond what Redis takes stops a save halfway",
        "save.lua",
        "math.min(now + math.ceil(interval), 2 ^ 52)",
        "now + interval",
        "all-or-nothing",
    ),
    Flaw(R, "an identifier that waits is given again", "save.lua", "until not used[member]", "until true", "packet-id"),
    Flaw(M, "a message begins a second later than it was saved", "append.lua", "at = now", "at = now + 1000", "expiry"),
    Flaw(
        M,
        "expired messages count against the limit",
        "append.lua",
        "if one.d > now then live",
        "if true then live",
        "legal-trim",
    ),
    Flaw(
        M,
        "the newest go when a save that keeps nothing lowers the limit",
        "append.lua",
        "gone[#gone + 1] = live[kept].s\n  kept = kept + 1",
        "gone[#gone + 1] = live[#live].s\n  live[#live] = nil",
        "legal-trim",
    ),
    Flaw(
        M, "a default of 0 is over on arrival", "append.lua", "(default > 0 and default or nil)", "default", "no-loss"
    ),
    Flaw(M, "one more is counted than was saved", "append.lua", "return count", "return count + 1", "packet-id"),
    Flaw(M, "a release has no deadline", "rec.lua", "one.k = 'PUBREL'", "one.k = 'PUBREL' one.d = 9e13", "expiry"),
    Flaw(H, "a page has two messages at most", "fetch.lua", "math.min(#found, ", "math.min(#found, 2, ", "drain"),
    Flaw(H, "the newest is held back", "fetch.lua", "math.min(#found, ", "math.min(#found - 1, ", "drain"),
    Flaw(
        H,
        "an interval is told of a message that has none",
        "fetch.lua",
        "told == '1' and tonumber(till) - now or 'x'",
        "tonumber(till) - now",
        "expiry",
    ),
    Flaw(
        H,
        "the mark of producer 1 stands where message 1 does",
        "save.lua",
        "'by ' .. ARGV[4]",
        "'#' .. ARGV[4]",
        "all-or-nothing",
    ),
    Flaw(H, "limit 0 is taken", "save.lua", "limit < 1", "limit < 0", "legal-trim"),
    Flaw("strings", "a release drops the deadline of its key", "release.lua", ", 'KEEPTTL')", ")", "expiry"),
    Flaw(
        "strings",
        "expired messages count against the limit",
        "save.lua",
        "if redis.call('GET', prefix .. ref) then",
        "if true then",
        "legal-trim",
    ),
    Flaw(F, "a release has no deadline", "sessions.lua", "one.k = 'PUBREL'", "one.k = 'PUBREL' one.d = FAR", "expiry"),
)


def found_in(binding: Binding) -> Findings:
    findings = Findings(frozenset(STORE_LAWS))
    look_at(binding, findings)
    return findings


def look_at(binding: Binding, findings: Findings) -> None:
    """Scenarios, and a few walks when these find nothing."""
    small = small_world(Subject(binding), findings)
    run_scenarios(small, findings)
    if not findings.by_law:
        walk_about(small, findings, 40)


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: f"{flaw.store}: {flaw.name}")
def test_a_flaw_is_found_by_the_law_that_it_breaks(flaw: Flaw) -> None:
    assert finds([flaw.breaks], partial(look_at, flaw.binding()))


def test_what_grows_with_every_message_is_found_at_full_scale_where_identifiers_hide_it_in_the_small_world() -> None:
    """The last acknowledgement of each identifier is kept under its name: three of them in the small world."""
    old = "if ARGV[4] == 'del' then return"
    new = "if ARGV[4] == 'del' then redis.call('HSET', KEYS[3], 'a' .. one.id, 1) return"
    flaw = Flaw(T, "", "answer.lua", old, new, "")
    findings = Findings(frozenset(["no-residue"]))
    run_machine(Subject(flaw.binding()), findings, 1)
    assert "with each message that comes and goes" in findings.by_law["no-residue"][0].text


def hidden(wrap: str) -> Binding:
    """The modulus is nowhere written out where identifiers are given, only where the limit is checked."""
    return Flaw(P, "", "save.lua", "s.l % 65535 + 1", wrap, "").binding()


def test_a_wrap_that_scaling_does_not_reach_is_noticed_and_accuses_nobody() -> None:
    findings = found_in(hidden("s.l % (2^16 - 1) + 1"))
    assert findings.by_law == {}
    assert any("do not go round" in note for note in findings.notes)


@pytest.mark.parametrize(("wrap", "broken"), [("s.l % (2^16 - 1) + 1", set()), ("(s.l + 1) % 2^16", {"packet-id"})])
def test_every_store_is_taken_across_the_wrap_on_its_scripts_as_they_are(wrap: str, broken: set[str]) -> None:
    findings = Findings(frozenset(STORE_LAWS))
    subject = Subject(hidden(wrap))
    cross_the_wrap(Prepared(subject, near_the_wrap(subject)), findings)
    assert findings.by_law.keys() == broken


@pytest.mark.parametrize(("size", "broken"), [("2", set()), ("<count>", {"drain"})])
def test_as_many_as_a_store_likes_at_a_time_are_a_page_where_nobody_asks_for_more(size: str, broken: set[str]) -> None:
    """The same two at most: whoever gives a page size is told that the end is reached."""
    flaw = Flaw(H, "", "fetch.lua", "math.min(#found, tonumber(ARGV[1]))", "math.min(#found, 2, tonumber(ARGV[1]))", "")
    binding = flaw.binding()
    tables = binding.store.model_dump(by_alias=True, exclude_none=True, warnings=False)
    tables["operations"]["fetch"]["args"] = [size, "0"]
    assert found_in(binding.with_store(Store.model_validate(tables))).by_law.keys() == broken


@pytest.mark.parametrize(("declines", "broken"), [(True, False), (False, True)])
def test_an_answer_that_notices_that_it_was_overtaken_may_decline(declines: bool, broken: bool) -> None:
    """It comes again. One that puts the queue back as it read it takes away what was saved in between."""
    binding = load_binding(DESIGNS / "compares-and-sets")
    tables = binding.store.model_dump(by_alias=True, exclude_none=True, warnings=False)
    call = tables["operations"]["acknowledge"]
    steps = [
        {"command": ["HGET", "<key.m>", "v"], "capture": "version"},
        {"script": call["script"], "keys": call["keys"], "args": [*call["args"], "<version|or:0>"]},
    ]
    tables["operations"]["acknowledge"] = {"steps": steps, "reply": call["reply"] | {"refused": ["BUSY"]}}
    source = next(script.source for script in binding.scripts if script.name == "answer.lua")
    decline = "return redis.status_reply('BUSY')" if declines else "redis.call('LTRIM', KEYS[1], 0, -2)"
    check = f"if ARGV[5] and redis.call('HGET', KEYS[2], 'v') ~= ARGV[5] then {decline} end\n"
    binding = binding.with_store(Store.model_validate(tables)).with_sources({"answer.lua": check.encode() + source})
    findings = Findings(frozenset(STORE_LAWS))
    walk_about(small_world(Subject(binding), findings), findings, 40)
    assert bool(findings.by_law) == broken
