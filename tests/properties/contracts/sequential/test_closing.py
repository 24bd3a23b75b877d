"""Closed scopes: a store that closes, and neighbours that behave otherwise where a canonical form could overlook it.

Each planted store differs from one that closes in one condition that few runs meet. It must be found broken, or stay
open.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.errors import InputError
from orderlab.properties.engine.canonical import Equivalence
from orderlab.properties.engine.certificate import Refused, certificate_of, check_certificate, digests_of
from orderlab.properties.engine.closed_scope import CLIENTS
from orderlab.properties.engine.closing import Closed, Closing
from orderlab.properties.engine.search import Search
from orderlab.properties.engine.validation import SequentialTerms, contract_of, run_of
from orderlab.properties.engine.witness import ContractReruns
from orderlab.properties.validation.findings import Findings
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.loader import load_binding
from tests.in_process import orderlab

LUA = Path(__file__).parents[4] / "lua"
STORE = """
specification = "tokens.py:Tokens"
[keys]
token = "{t}:token"
held = "{t}:held"
[operations.take]
script = "take.lua"
keys = ["token", "held"]
args = ["<ttl_ms>"]
[operations.give]
script = "give.lua"
keys = ["held"]
args = ["<token>"]
"""
CONTRACT = """
from typing import NamedTuple
from orderlab.contract import Call, Contract, above


class Taken(NamedTuple):
    last: int = 0
    token: int = 0
    until_ms: int = 0


class Tokens(Contract):
    operations = {"take": ("ttl_ms",), "give": ("token",)}

    def initial(self):
        return Taken()

    def elapse(self, state, now_ms):
        return state._replace(token=0, until_ms=0) if state.token and now_ms > state.until_ms else state

    def outcomes(self, state, call, now_ms):
        if state.token and now_ms == state.until_ms:
            yield from self.outcomes(self.elapse(state, now_ms + 1), call, now_ms)
        if call.name == "take":
            yield above(state.last), lambda token: Taken(token, token, now_ms + call["ttl_ms"])
        elif call["token"] == state.token:
            yield 1, state._replace(token=0, until_ms=0)
        else:
            yield 0, state

    def deadlines_ms(self, state):
        return [state.until_ms] if state.token else []

    def calls(self, client, seen):
        yield Call.of("take", ttl_ms=1000)
        for one in seen[-1:]:
            if one.call.name == "take":
                yield Call.of("give", token=one.reply)
"""
TAKE = """
local now = redis.call('TIME')[1]
local token = redis.call('INCR', KEYS[1])
redis.call('SET', KEYS[2], token, 'PX', ARGV[1])
PLANTED
return token
"""
GIVE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""
FLAG = {
    "store.toml": """
specification = "flag.py:Flag"
[keys]
flag = "{f}:flag"
[operations.put]
script = "put.lua"
keys = ["flag"]
[operations.take]
script = "take.lua"
keys = ["flag"]
""",
    "put.lua": "redis.call('SET', KEYS[1], 1) return 1",
    "take.lua": "return redis.call('DEL', KEYS[1])",
    "flag.py": """
from orderlab.contract import Call, Contract


class Flag(Contract):
    operations = {"put": (), "take": ()}

    def initial(self):
        return 0

    def outcomes(self, state, call, now_ms):
        yield (1, 1) if call.name == "put" else (state, 0)

    def calls(self, client, seen):
        yield Call.of("put")
        yield Call.of("take")
""",
}
"""A store of a few states."""
COUNTERS, INSTANTS = Equivalence.COUNTERS, Equivalence.INSTANTS
PLANTED = {
    "a threshold of a counter": (COUNTERS, "if token > 137 then return 0 end"),
    "a threshold that is calculated": (COUNTERS, "if token * 2 - 41 > 1000 then return 0 end"),
    "the last digit of a token": (COUNTERS, "if token % 10 == 7 then redis.call('DEL', KEYS[2]) end"),
    "the length of a number": (COUNTERS, "if #tostring(token) > 5 then return 0 end"),
    "the time of day": (INSTANTS, "if now % 86400 > 76400 then return 0 end"),
    "a date": (INSTANTS, "if tonumber(now) > 1710000000 then return 0 end"),
}


def store(folder: Path, planted: str = "") -> Binding:
    for name, text in (("store.toml", STORE), ("tokens.py", CONTRACT), ("give.lua", GIVE)):
        (folder / name).write_text(text)
    (folder / "take.lua").write_text(TAKE.replace("PLANTED", planted))
    return load_binding(folder, trust_adapter=True)


def closed(binding: Binding, steps: int = 12_000) -> tuple[Closed, Findings]:
    laws = SequentialTerms(contract_of(binding)).laws
    findings = Findings(frozenset(laws))
    search = Search(ContractReruns(lambda: run_of(binding)), findings)
    return Closing(run_of(binding, CLIENTS), search, 0, steps).close(), findings


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Binding, Closed, Findings]:
    binding = store(tmp_path_factory.mktemp("tokens"))
    return binding, *closed(binding)


def test_a_store_closes(whole: tuple[Binding, Closed, Findings]) -> None:
    _, found, findings = whole
    assert found.is_closed
    assert not findings.by_law
    assert not any(one.refuted for one in found.checked.values())
    assert "for any number of operations" in found.words
    assert "2 clients" in found.words


@pytest.mark.parametrize(("which", "planted"), PLANTED.values(), ids=PLANTED)
def test_what_a_canonical_form_could_overlook_keeps_it_open(which: Equivalence, planted: str, tmp_path: Path) -> None:
    found, _ = closed(store(tmp_path, planted), 3_000)
    assert not found.is_closed
    assert found.checked[which].refuted


def without(states: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    left = [*states[:at], *states[at + 1 :]]
    return [{**one, "from": one["from"] - (one["from"] > at)} for one in left]


def test_a_certificate_is_checked_and_refused_when_it_was_tampered_with(
    whole: tuple[Binding, Closed, Findings],
) -> None:
    binding, found, _ = whole
    laws = [*SequentialTerms(contract_of(binding)).laws]
    given = json.loads(json.dumps(certificate_of(found, run_of(binding, CLIENTS), laws, 0)))
    assert check_certificate(given, run_of(binding, CLIENTS), laws, "it").startswith(found.words)
    states = given["states"]
    leaf = next(at for at in range(1, len(states)) if all(one["from"] != at for one in states))
    tampered = {
        "is not there": {**given, "states": without(states, leaf)},
        "another than its digest": {
            **given,
            "states": [
                states[0],
                {**states[1], "digest": states[2]["digest"]},
                {**states[2], "digest": states[1]["digest"]},
                *states[3:],
            ],
        },
        "laws": {**given, "laws": given["laws"][1:]},
        "binding is not": {**given, "digests": {**given["digests"], "binding": "0"}},
        "take.lua is not": {**given, "digests": {**given["digests"], "script take.lua": "0"}},
        "other clocks": {**given, "skews_ms": [0, 1]},
    }
    for why, content in tampered.items():
        with pytest.raises(Refused, match=why):
            check_certificate(content, run_of(binding, CLIENTS), laws, "it")


def flag(folder: Path) -> Binding:
    for name, text in FLAG.items():
        (folder / name).write_text(text)
    return load_binding(folder, trust_adapter=True)


def edited(content: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy with another value at a place."""
    if not path:
        return value
    other = dict(content) if isinstance(content, dict) else list(content)
    other[path[0]] = edited(content[path[0]], path[1:], value)
    return other


EDITS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "more clients": (("bounds", "clients"), 5),
    "more things": (("bounds", "live_max"), 99),
    "less than nothing": (("bounds", "live_max"), -1),
    "steps of time": (("bounds", "grid_ms"), 10**9),
    "what clients remember": (("bounds", "held_max"), -1),
    "an equivalence that must be used": (("equivalences", "instants", "used"), False),
    "an equivalence that nobody tried": (("equivalences",), {"instants": {"used": True}, "counters": {"used": True}}),
    "numbers that only grow": (("counters",), [["x"]]),
    "what was passed": (("domains",), {"put": {"x": ["1"]}}),
    "the contract": (("contract",), "Lock"),
    "no laws": (("laws",), None),
    "a client that is not there": (("states", 1, "step", "client"), 7),
    "a trouble that is none": (("states", 2, "step", "trouble"), {"kind": "x", "key": "", "at": 0, "found": ""}),
    "a step by nobody": (("states", 1, "step"), None),
    "itself": (("states", 1, "from"), 1),
    "words": (("says",), "for any number of operations"),
}


def test_a_certificate_that_was_edited_anywhere_is_refused(tmp_path: Path) -> None:
    binding = flag(tmp_path)
    laws = [*SequentialTerms(contract_of(binding)).laws]
    given = json.loads(json.dumps(certificate_of(closed(binding)[0], run_of(binding, CLIENTS), laws, 0)))
    assert "checked: 4 states" in check_certificate(given, run_of(binding, CLIENTS), laws, "it")
    for what, (path, value) in EDITS.items():
        content = edited(given, path, value)
        with pytest.raises(Refused):
            assert check_certificate(content, run_of(binding, CLIENTS), laws, "it") == what
    with pytest.raises(InputError, match="OverflowError"):
        check_certificate(edited(given, ("bounds", "live_max"), math.inf), run_of(binding, CLIENTS), laws, "it")


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in items:
        yield from leaves(value, (*path, name))
    if not items:
        yield path, content


def says_the_same(path: tuple[Any, ...]) -> bool:
    """Whether another value there changes nothing of what is shown: where draws begin; how often the search has tested;
    what one of two clients that are alike does; how many a client may hold, where none holds any; and where the store
    lies, which the command reads."""
    return (
        path in ((), ("seed",), ("store",), ("bounds", "held_max"))
        or (path[0] == "equivalences" and path[2:] in (("pairs",), ("changed",)))
        or (path[0] == "states" and path[2:] == ("step", "client"))
    )


def test_every_value_of_a_certificate_decides(tmp_path: Path) -> None:
    binding = flag(tmp_path)
    laws = [*SequentialTerms(contract_of(binding)).laws]
    given = json.loads(json.dumps(certificate_of(closed(binding)[0], run_of(binding, CLIENTS), laws, 0)))
    decisive = [(path, value) for path, value in leaves(given) if not says_the_same(path)]
    assert len(decisive) > 40
    for path, value in random.Random(26).sample(decisive, 16):
        other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "x"
        with pytest.raises((Refused, InputError)):
            assert check_certificate(edited(given, path, other), run_of(binding, CLIENTS), laws, "it") == path
    for path in (("seed",), ("equivalences", "instants", "pairs"), ("states", 1, "step", "client")):
        check_certificate(edited(given, path, 1), run_of(binding, CLIENTS), laws, "it")


def test_a_certificate_that_was_carried_over_to_other_scripts_is_refused(
    whole: tuple[Binding, Closed, Findings], tmp_path: Path
) -> None:
    binding, found, _ = whole
    laws = [*SequentialTerms(contract_of(binding)).laws]
    given = json.loads(json.dumps(certificate_of(found, run_of(binding, CLIENTS), laws, 0)))
    other = store(tmp_path, PLANTED["a threshold of a counter"][1])
    content = {**given, "digests": digests_of(other, contract_of(other))}
    with pytest.raises(Refused, match="scripts can tell"):
        check_certificate(content, run_of(other, CLIENTS), laws, "it")


def test_clients_that_go_on_giving_new_names_keep_a_store_open() -> None:
    found, _ = closed(load_binding(LUA / "job_queue"))
    assert not found.is_closed
    assert "add.job" in found.gap


def test_a_violation_that_is_met_while_closing_is_a_finding() -> None:
    found, findings = closed(load_binding(LUA / "specimens" / "limiter-fixed-window", trust_adapter=True))
    assert not found.is_closed
    assert findings.by_law


def test_the_command_line_says_what_is_closed_and_refuses_what_was_changed(tmp_path: Path) -> None:
    flag(tmp_path)
    file = tmp_path / "certificate.json"
    judged = ["validate", str(tmp_path), "--trust-adapter", "--effort", "0.01", "--backend", "kernel"]
    assert orderlab(*judged, "--certificate", str(file)).returncode == 0
    checked = orderlab("certify", str(file), "--trust-adapter")
    assert checked.returncode == 0
    assert "for any number of operations" in checked.stdout
    (tmp_path / "put.lua").write_text(FLAG["put.lua"] + "  -- changed")
    refused = orderlab("certify", str(file), "--trust-adapter")
    assert refused.returncode == 1
    assert "script put.lua is not what the certificate is of" in refused.stderr
    assert orderlab("certify", str(tmp_path / "store.toml")).returncode == 2
    session = orderlab("certify", str(file), "--store", "lua/session")
    assert session.returncode == 2
    assert "no certificates" in session.stderr
