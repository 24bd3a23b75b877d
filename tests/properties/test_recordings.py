"""Recorded calls judged by contracts: sound recordings and their nearest broken ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.checkers.judge import Source, in_memory
from orderlab.model.errors import InputError
from orderlab.model.history.decoding import RowDecoder
from orderlab.model.history.events import COLUMNS
from orderlab.model.verdict import Verdict
from orderlab.properties.recordings import RecordingJudge
from orderlab.sim.stores.binding.loader import load_binding

RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
RQ_QUEUE = Path("tests/laboratory/conformance/rq_queue")
STORE = """
specification = "lock"
[promises]
tokens = "caller"
[keys]
lease = "{lock}"
[operations.acquire]
command = ["SET", "<key.lease>", "<token>", "NX", "PX", "<ttl_ms>"]
[operations.release]
script = "release.lua"
keys = ["lease"]
args = ["<token>"]
"""
SHA = hashlib.sha1(RELEASE.encode()).hexdigest()
Row = tuple[int, str, int, Any]
"""Milliseconds, kind, process (and connection), words or reply."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store.toml").write_text(STORE)
    (tmp_path / "release.lua").write_text(RELEASE)
    return tmp_path


def source_of(rows: list[Row]) -> Source:
    names = {}
    written = []
    for number, (at_ms, kind, process, value) in enumerate(rows):
        if kind == "invoke":
            names[process] = value.split()[0].lower()
            value = value.split()
        written.append({
            "event_id": number, "time_us": at_ms * 1000, "kind": kind, "process": process, "connection": process + 1,
            "operation": names[process], "value": json.dumps(value),
        })  # fmt: skip
    decoder = RowDecoder("rows")
    batch = decoder.decode(written, frozenset(COLUMNS))
    return in_memory("rows", [batch], decoder.names)


def judged(store: Path, rows: list[Row], keys: dict[str, str] | None = None) -> dict[str, Verdict]:
    verdicts, count = RecordingJudge(load_binding(store), keys).judge(source_of(rows))
    assert count == len(rows)
    return {verdict.law: verdict for verdict in verdicts}


def outcomes(found: dict[str, Verdict]) -> set[str]:
    return {law for law, verdict in found.items() if verdict.outcome == "violated"}


def acquire(token: str, key: str = "{lock}", ttl_ms: int = 1000) -> str:
    return f"SET {key} {token} NX PX {ttl_ms}"


def release(token: str, key: str = "{lock}") -> str:
    return f"EVALSHA {SHA} 1 {key} {token}"


def test_who_is_refused_while_another_holds_it_is_explained(store: Path) -> None:
    found = judged(store, [
        (0, "invoke", 0, acquire("a")), (1, "ok", 0, "OK"), (2, "invoke", 1, acquire("b")), (3, "ok", 1, None),
        (4, "invoke", 0, release("a")), (5, "ok", 0, 1), (6, "invoke", 1, acquire("b")), (7, "ok", 1, "OK"),
    ])  # fmt: skip
    assert not outcomes(found)
    assert found["mutual-exclusion"].outcome == "holds"
    assert found["mutual-exclusion"].work["operations"] == 4


def test_two_holders_break_mutual_exclusion(store: Path) -> None:
    found = judged(store, [
        (0, "invoke", 0, acquire("a")), (1, "ok", 0, "OK"), (2, "invoke", 1, acquire("b")), (3, "ok", 1, "OK"),
    ])  # fmt: skip
    assert outcomes(found) == {"mutual-exclusion"}
    witness = found["mutual-exclusion"].witness
    assert [each["operation"][:18] for each in witness.operations] == ["acquire(token='a',", "acquire(token='b',"]


def test_calls_that_overlap_may_come_in_either_order(store: Path) -> None:
    rows: list[Row] = [
        (0, "invoke", 0, acquire("a")), (0, "ok", 0, "OK"),
        (2, "invoke", 0, release("a")), (3, "invoke", 1, acquire("b")), (4, "ok", 1, "OK"), (5, "ok", 0, 1),
    ]  # fmt: skip
    assert not outcomes(judged(store, rows))
    rows[3:5] = [(3, "ok", 0, 1), (4, "invoke", 1, acquire("b"))]  # the release is over: the lock must be had
    rows[5] = (5, "ok", 1, None)
    assert outcomes(judged(store, rows)) == {"recovery"}


def test_a_lease_ends_by_the_time_between_call_and_reply(store: Path) -> None:
    def rows(again_ms: int) -> list[Row]:
        return [
            (0, "invoke", 0, acquire("a", ttl_ms=100)), (10, "ok", 0, "OK"),
            (again_ms, "invoke", 1, acquire("b")), (again_ms, "ok", 1, "OK"),
        ]  # fmt: skip

    assert outcomes(judged(store, rows(99))) == {"mutual-exclusion"}
    assert not outcomes(judged(store, rows(104)))


def test_a_call_without_a_reply_has_happened_or_not(store: Path) -> None:
    lost: list[Row] = [(0, "invoke", 0, acquire("a")), (1, "info", 0, None)]
    for reply in (None, "OK"):
        assert not outcomes(judged(store, [*lost, (2, "invoke", 1, acquire("b")), (3, "ok", 1, reply)]))
    seen: list[Row] = [
        (2, "invoke", 1, acquire("b")),
        (3, "ok", 1, "OK"),
        (4, "invoke", 1, release("b")),
        (5, "ok", 1, 1),
    ]
    late: list[Row] = [(6, "invoke", 1, acquire("c")), (7, "ok", 1, None)]  # somebody else has the lock by now
    assert outcomes(judged(store, [*lost, *seen, *late])) == {"recovery"}
    assert not outcomes(judged(store, [lost[0], (1, "info", 0, "open"), *seen, *late]))
    for ended in ((1, "ok", 0, None), (1, "fail", 0, {"error": "OOM command not allowed"})):
        refused = [lost[0], ended, (2, "invoke", 1, acquire("b")), (3, "ok", 1, None)]
        assert outcomes(judged(store, refused)) == {"recovery"}


def test_commands_of_a_transaction_happen_when_it_does(store: Path) -> None:
    rows: list[Row] = [
        (0, "invoke", 0, "MULTI"), (0, "ok", 0, "OK"), (1, "invoke", 0, acquire("a")), (1, "ok", 0, "QUEUED"),
        (2, "invoke", 1, acquire("b")), (2, "ok", 1, "OK"), (3, "invoke", 0, "EXEC"), (3, "ok", 0, [None]),
    ]  # fmt: skip
    assert not outcomes(judged(store, rows))
    rows[-1] = (3, "ok", 0, ["OK"])
    assert outcomes(judged(store, rows)) == {"mutual-exclusion"}
    rows[-1] = (3, "ok", 0, None)  # a watched key has changed
    assert judged(store, rows)["mutual-exclusion"].work["operations"] == 1


def test_a_star_in_a_key_tells_stores_apart(store: Path) -> None:
    rows: list[Row] = [
        (0, "invoke", 0, acquire("a", "lock:x")), (1, "ok", 0, "OK"),
        (2, "invoke", 1, acquire("b", "lock:y")), (3, "ok", 1, "OK"),
        (4, "invoke", 1, f"EVAL {RELEASE.replace(' ', chr(1))} 1 lock:x b"), (5, "ok", 1, 0),
    ]  # fmt: skip
    assert judged(store, rows)["specification"].vacuous
    found = judged(store, rows, {"lease": "lock:*"})
    assert not outcomes(found)
    assert found["specification"].work["instances"] == 2
    assert any("EVAL (1)" in note for note in found["specification"].not_covered)
    rows[2] = (2, "invoke", 1, acquire("b", "lock:x"))
    assert outcomes(judged(store, rows, {"lease": "lock:*"})) == {"mutual-exclusion"}


def test_an_operation_of_several_calls_leaves_all_unknown(store: Path) -> None:
    text = STORE.replace(
        'command = ["SET", "<key.lease>", "<token>", "NX", "PX", "<ttl_ms>"]',
        'steps = [{ command = ["SETNX", "<key.lease>", "<token>"] }, '
        '{ command = ["PEXPIRE", "<key.lease>", "<ttl_ms>"] }]',
    )
    (store / "store.toml").write_text(text)
    found = judged(store, [
        (0, "invoke", 0, "SETNX {lock} a"), (1, "ok", 0, 1), (2, "invoke", 0, release("a")), (3, "ok", 0, 1),
    ])  # fmt: skip
    assert {verdict.outcome for verdict in found.values()} == {"unknown"}
    assert any("several calls" in note for note in found["specification"].not_covered)


def test_what_cannot_be_used_is_one_line(store: Path) -> None:
    with pytest.raises(InputError, match='has no key "leas"; did you mean "lease"'):
        RecordingJudge(load_binding(store), {"leas": "x"})
    with pytest.raises(InputError, match="session store"):
        RecordingJudge(load_binding(Path("orderlab/lua/session")))


def test_a_script_that_is_called_with_other_keys_is_named_with_the_cure(store: Path) -> None:
    found = judged(store, [(0, "invoke", 0, f"EVALSHA {SHA} 1 job:7 t"), (1, "ok", 0, 0)])
    assert all(verdict.vacuous for verdict in found.values())
    notes = " ".join(found["specification"].not_covered)
    assert "the script of operations.release was called with KEYS job:7, which the binding spells {lock}" in notes
    assert "--key NAME=TEXT" in notes


def test_what_rqs_workers_take_is_held_against_a_first_in_first_out_queue() -> None:
    store, keys = load_binding(RQ_QUEUE, trust_adapter=True), {"queue": "q", "begun": "q:intermediate"}
    rows: list[Row] = [
        (0, "invoke", 0, "RPUSH q a"), (1, "ok", 0, 1), (2, "invoke", 0, "RPUSH q b"), (3, "info", 0, None),
        (4, "invoke", 1, "LMOVE q q:intermediate LEFT RIGHT"), (5, "ok", 1, "a"),
        (6, "invoke", 1, "LREM q:intermediate 1 a"), (7, "ok", 1, 1),
        (8, "invoke", 2, "LMOVE q q:intermediate LEFT RIGHT"), (9, "ok", 2, None),
    ]  # fmt: skip
    verdicts, _ = RecordingJudge(store, keys).judge(source_of(rows))
    assert {verdict.law for verdict in verdicts if verdict.outcome == "violated"} == set()
    rows[3] = (3, "ok", 0, 2)  # it is known to wait
    verdicts, _ = RecordingJudge(store, keys).judge(source_of(rows))
    assert {verdict.law for verdict in verdicts if verdict.outcome == "violated"} == {"no-loss"}


OWN_CONTRACT = """
from orderlab.contract import Call, Contract

class Slot(Contract):
    operations = {"book": ("who", "seconds")}

    def initial(self):
        return 0

    def elapse(self, state, now_ms):
        return state if state > now_ms else 0

    def outcomes(self, state, call, now_ms):
        yield (0, state) if state else (1, now_ms + 1000 * call["seconds"])

    def calls(self, client, seen):
        yield Call.of("book", who=f"w{client}", seconds=1)
"""


def test_a_contract_without_ranges_is_given_numbers_where_its_own_calls_have_them(tmp_path: Path) -> None:
    (tmp_path / "slot.py").write_text(OWN_CONTRACT)
    (tmp_path / "book.lua").write_text("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[2]) and 1 or 0")
    (tmp_path / "store.toml").write_text(
        'specification = "slot.py:Slot"\n[keys]\nslot = "{slot}"\n[operations.book]\nscript = "book.lua"\n'
        'keys = ["slot"]\nargs = ["<who>", "<seconds>"]\n'
    )
    sha = hashlib.sha1((tmp_path / "book.lua").read_bytes()).hexdigest()
    rows: list[Row] = [(0, "invoke", 0, f"EVALSHA {sha} 1 {{slot}} 7 2"), (1, "ok", 0, 1)]
    judge = RecordingJudge(load_binding(tmp_path, trust_adapter=True))
    verdicts, _ = judge.judge(source_of(rows))
    assert [(verdict.law, str(verdict.outcome)) for verdict in verdicts] == [("specification", "holds")]


@pytest.mark.parametrize("name", ["feed", "feed_watched", "job_queue", "job_queue_blocking", "limiter", "lock"])
def test_every_bundled_contract_can_judge_a_recording(name: str) -> None:
    """A state that depends on the reply (``above``) is asked for with one, as by every other judge."""
    assert RecordingJudge(load_binding(Path("orderlab/lua") / name, trust_adapter=True)) is not None
