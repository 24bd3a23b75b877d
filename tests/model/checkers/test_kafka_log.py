"""Each anomaly of a log with offsets in one line, with its witness and the near miss; and a second judge, from
quantifiers."""

import itertools
import random
import re

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge, judge_operations
from orderlab.model.checkers.kafka_log import LAWS, ON_REQUEST, PROMISED, judge_kafka_log
from orderlab.model.checkers.linearizability.operations import EventCollector
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.model.history.jepsen import read_edn_operations
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome

# An operation is a word: process, function (t txn, s send, p poll, a assign, b assign and seek to the beginning, u
# subscribe, c crash), micro-operations in brackets, and ! failed or ? unknown. `sx1@0` sent 1 to x and got offset 0;
# `px1@0+2@1` polled 1 and 2 from x.
FUNCTIONS = {"t": "txn", "s": "send", "p": "poll", "a": "assign", "b": "assign", "u": "subscribe", "c": "crash"}
WORD = re.compile(r"(?P<process>\d+)(?P<function>[tspabuc])(?:\[(?P<mops>.*)\])?(?P<mark>[!?]?)")
ENDS = {"": EventKind.OK, "!": EventKind.FAIL, "?": EventKind.INFO}


def parsed(line):
    """Operations as dictionaries: what the second judge reads, and what logs are made of."""
    operations = []
    for word in line.split():
        found = WORD.fullmatch(word)
        mops = (found["mops"] or "").split(",") if found["mops"] else []
        operation = {
            "process": int(found["process"]),
            "f": FUNCTIONS[found["function"]],
            "end": ENDS[found["mark"]],
            "mops": [],
        }
        if operation["f"] in ("assign", "subscribe"):
            operation["keys"], operation["seeks"] = mops, found["function"] == "b"
        else:
            for mop in mops:
                pairs = [tuple(map(int, part.split("@"))) for part in mop[2:].split("+") if part]
                operation["mops"].append((mop[0], mop[1:2], pairs))
        operations.append(operation)
    return operations


def log_of(operations):
    collector = EventCollector()
    for row, operation in enumerate(operations):
        asked = told = tuple(operation.get("keys", ())) or None
        if operation.get("seeks"):
            asked = told = {"keys": asked or (), "seek-to-beginning?": True}
        if operation["mops"]:
            asked = tuple(
                ("send", key, pairs[0][0]) if kind == "s" else ("poll",) for kind, key, pairs in operation["mops"]
            )
            told = tuple(
                ("send", key, pairs[0][::-1] if len(pairs[0]) == 2 else pairs[0][0])
                if kind == "s"
                else ("poll", {key: tuple((offset, value) for value, offset in pairs)} if key else {})
                for kind, key, pairs in operation["mops"]
            )
        process, function, end = operation["process"], operation["f"], operation["end"]
        collector.add(process, EventKind.INVOKE, function, None, asked, 2 * row)
        collector.add(
            process,
            end,
            function,
            None,
            asked if end == EventKind.FAIL and not operation.get("tells") else told,
            2 * row + 1,
        )
    return collector.log("row ")


# law, known-bad, the operations that show it, near miss
ANOMALIES = [
    ("consistent-offsets", "0s[sx1@0] 1s[sx2@0]", [0, 1], "0s[sx1@0] 1s[sy2@0]"),
    ("consistent-offsets", "0s[sx1@0,sx2@1] 1p[px1@0+3@1]", [0, 1], "0s[sx2@1]? 1p[px1@0+3@1]"),
    ("consistent-offsets", "0s[sx1@0,sx2@1]? 1p[px1@0+3@1]", [0, 1], "0s[sx1@0,sx2@1]? 1p[px3@1]"),
    ("no-duplicate", "0s[sx1@0] 1p[px1@3]", [0, 1], "0s[sx1@0] 1p[py1@3]"),
    ("no-duplicate", "0s[sx1]? 1p[px1@0+1@1]", [1], "0s[sx1]? 1p[px1@0] 2p[px1@0]"),
    # A value that is sent again may be there as often; what failed may not.
    ("no-duplicate", "0s[sx1@0] 0s[sx1@1] 1p[px1@2]", [1, 2], "0s[sx1@0] 0s[sx1@1] 1p[px1@1]"),
    ("no-duplicate", "0s[sx1]! 0s[sx1@1] 1p[px1@0]", [2, 1], "0s[sx1]? 0s[sx1@1] 1p[px1@0]"),
    # Somebody read past it, and nobody ever read it: within an operation, from one to the next, from the beginning.
    # A transaction of unknown outcome of which a part was polled has committed as a whole.
    ("no-lost-write", "0s[sx1@0,sx2@1,sx3@2]? 1p[px1@0+3@2]", [0, 1], "0s[sx1@0] 2s[sx2@1]? 3s[sx3@2] 1p[px1@0+3@2]"),
    ("no-lost-write", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0+3@2]", [0, 1], "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 2p[px3@2]"),
    ("no-lost-write", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1p[px3@2]", [0, 1, 2], "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1c "
        "1p[px3@2]"),
    ("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1]", [0, 2, 3], "0s[sx1@0] 0s[sx2@1] 1a[x] 1p[px2@1]"),
    ("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1]", [0, 2, 3], "0s[sx1@0] 0s[sx2@1] 1b[x] 1u[x] 1p[px2@1]"),
    ("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1]", [0, 2, 3], "0s[sx1@0] 0s[sx2@1] 1b[x] 1t[p]? 1p[px2@1]"),
    ("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1]", [0, 2, 3], "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px1@0]"),
    # Sent twice: each acknowledgement names an offset. A consumer that began later proves nothing.
    ("no-lost-write", "0s[sx1@0] 0s[sx1@1] 1b[x] 1p[px1@1]", [0, 2, 3], "0s[sx1]! 0s[sx1@1] 1b[x] 1p[px1@1]"),
    ("no-lost-write", "0s[sx1@0] 1s[sx2] 2p[px2@0]", [0, 2], "0s[sx1@0]? 0s[sx2] 2p[px2@0]"),
    ("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1]", [0, 2, 3], "0s[sx1@0]! 0s[sx2@1] 1b[x] 1p[px2@1]"),
    ("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1]", [0, 2, 3], "0s[sx1@0] 0s[sx2@1] 1b[x] 1p[px2@1] "
        "2p[px1@0]"),
    ("no-phantom", "0p[px1@0]", [0], "0s[sx1]? 0p[px1@0]"),
    ("no-phantom", "0p[px1@0] 1s[sx1@0]", [0, 1], "1s[sx1@0] 0p[px1@0]"),
    ("no-G1a", "0t[sx1]! 1p[px1@0]", [0, 1], "0t[sx1]? 1p[px1@0]"),
    ("no-G1a", "0t[sx1]! 0t[sx1]! 1p[px1@0]", [0, 2], "0t[sx1]! 0t[sx1@0] 1p[px1@0]"),
    ("no-phantom", "0p[px1@0] 1s[sx1@0] 1s[sx1@1]", [0, 1], "1s[sx1@0] 0p[px1@0] 1s[sx1@1]"),
    ("no-precommitted-read", "0t[sx1@0,sx1@1,px1@0]", [0], "0t[sx1@0,px1@0] 1t[sx1@1]"),
    ("no-precommitted-read", "0t[sx1@0,px1@0]", [0], "0t[sx1@0] 0t[px1@0,sx2@1]"),
    # In one operation: 0 and 2 with 1 known; down, or the same again.
    ("no-int-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0+3@2]", [1, 0], "0s[sx1@0,sx3@2] 1p[px1@0+3@2]"),
    ("no-int-nonmonotonic-poll", "0p[px2@1,px1@0]", [0], "0p[px2@1,py1@0]"),
    ("no-int-nonmonotonic-poll", "0p[px1@0+1@0]", [0], "0p[px1@0+2@1]"),
    # A rebalance comes between two polls, not within one; who assigns its keys itself has none.
    ("no-int-nonmonotonic-poll", "0a[x] 0t[px2@1,px1@0]?", [1], "0u[x] 0t[px2@1,px1@0]?"),
    ("no-int-nonmonotonic-poll", "0u[x] 0t[px2@1+1@0]", [1], "0u[x] 0t[px1@0,p,px1@0]"),
    ("no-int-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1u[x] 1p[px1@0+3@2]", [2, 0], "0s[sx1@0,sx2@1,sx3@2] 1u[x] "
        "1t[px1@0,px3@2]"),
    ("no-lost-write", "0s[sx1@0,sx2@1,sx3@2] 1a[x] 1t[px1@0,px3@2]", [0, 2], "0s[sx1@0,sx2@1,sx3@2] 1u[x] "
        "1t[px1@0,px3@2]"),
    ("no-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1p[px3@2]", [1, 2, 0], "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] "
        "2p[px3@2]"),
    ("no-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1a[x] 1p[px3@2]", [1, 3, 0], "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] "
        "1a[y] 1a[x] 1p[px3@2]"),
    ("no-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1p[px3@2]", [1, 2, 0], "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1t[p]! "
        "1p[px3@2]"),
    ("no-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1p[px3@2]", [1, 2, 0], "0s[sx1@0,sx2@1,sx3@2] 1u[x] 1p[px1@0] "
        "1p[px3@2]"),
    ("no-nonmonotonic-poll", "0p[px1@0+2@1] 0p[px2@1]", [0, 1], "0p[px1@0+2@1] 0c 0p[px2@1]"),
    ("no-nonmonotonic-poll", "0p[px1@0+2@1] 0a[x] 0p[px2@1]", [0, 2], "0p[px1@0+2@1] 0b[x] 0p[px1@0]"),
    ("no-int-nonmonotonic-send", "0t[sx1@1,sx2@0]", [0], "0t[sx1@1,sy2@0]"),
    ("no-nonmonotonic-send", "0s[sx1@1] 0s[sx2@0]", [0, 1], "0s[sx1@1] 1s[sx2@0]"),
    # A send whose answer names no offset, or has none, stands where the polls say; of a value sent twice nobody knows
    # which.
    ("no-int-nonmonotonic-send", "0s[sx1,sx2] 1p[px2@0+1@1]", [0], "0s[sx1,sx2] 1p[px1@0+2@1]"),
    ("no-int-nonmonotonic-send", "0s[sx1,sx2]? 1p[px2@0+1@1]", [0], "0s[sx1,sx2]! 1p[px2@0+1@1]"),
    ("no-int-nonmonotonic-send", "0s[sx1,sx2] 1p[px2@0+1@1]", [0], "0s[sx1,sx2] 2s[sx2] 1p[px2@0+1@1]"),
    ("no-nonmonotonic-send", "0s[sx1] 0s[sx2] 1p[px2@0] 1p[px1@1]", [0, 1], "0s[sx1] 3s[sx2] 1p[px2@0] 1p[px1@1]"),
    # What was polled was seen, however the operation ended.
    ("consistent-offsets", "0s[sx1@0] 1t[px2@0,sy1]?", [0, 1], "0s[sx1@0] 1t[px1@0,sy1]?"),
    ("no-phantom", "0t[px1@0]?", [0], "1s[sx1]? 0t[px1@0]?"),
    ("no-int-nonmonotonic-poll", "0t[px2@1,px1@0]?", [0], "0t[px2@1]? 0t[px1@0]?"),
    ("no-int-send-skip", "0t[sx1@0,sx3@2] 1s[sx2@1]", [0, 1], "0t[sx1@0,sx3@1] 1s[sx2@2]"),
    ("no-wr-cycle", "0t[sx1@0,py2@0] 1t[px1@0,sy2@0]", [0, 1], "0t[sx1@0,p] 1t[px1@0,sy2@0] 2t[py2@0]"),
    ("no-G0", "0t[sx1@0,sy1@1] 1t[sx2@1,sy2@0]", [0, 1], "0t[sx1@0,sy1@0] 1t[sx2@1,sy2@1]"),
    # Jepsen calls `send` what consists of sends: a transaction as well.
    ("no-G0", "0s[sx1@0,sy1@1] 1s[sx2@1,sy2@0]", [0, 1], "0s[sx1@0] 0s[sy1@1] 1s[sx2@1] 1s[sy2@0]"),
    ("no-G1c", "0t[sx1@0,py2@0] 1t[sx2@1,sy2@0]", [0, 1], "0t[sx1@0] 0t[py2@0] 1t[sx2@1,sy2@0]"),
    # A circle of writes alone is G0 and no G1c; what failed is in no circle.
    ("no-G1c", "0t[sx1@0,py2@0] 1t[sx2@1,sy2@0]", [0, 1], "0t[sx1@0,sy1@1] 1t[sx2@1,sy2@0] 2p[py1@1]"),
    ("no-G1c", "0t[sx1@0,py2@0] 1t[sx2@1,sy2@0]", [0, 1], "0t[sx1@0,py2@0] 1t[sx2@1,sy2@0]!"),
]  # fmt: skip


def verdict_on(law, line):
    (found,) = judge_kafka_log(log_of(parsed(line)), (law,))
    return found


@pytest.mark.parametrize(("law", "bad", "witness", "near_miss"), ANOMALIES)
def test_the_anomaly_is_found_and_its_near_miss_is_not(law, bad, witness, near_miss):
    found = verdict_on(law, bad)
    assert found.outcome is Outcome.VIOLATED
    assert [operation["rows"][0] // 2 for operation in found.witness.operations] == witness
    assert verdict_on(law, near_miss).outcome is not Outcome.VIOLATED


def test_every_law_has_a_known_bad_and_what_kafka_does_not_promise_is_judged_on_request():
    assert {law for law, *_ in ANOMALIES} == set(LAWS)
    assert [verdict.law for verdict in judge_kafka_log(log_of(parsed("0s[sx1@0]")))] == list(PROMISED)
    assert set(LAWS) - set(PROMISED) == set(ON_REQUEST)


def test_the_witness_says_what_is_wrong():
    assert verdict_on("no-lost-write", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0+3@2]").witness.why == (
        "2 was acknowledged at offset 1 of x, a consumer went from offset 0 to 2, and it never was polled"
    )
    assert verdict_on("no-lost-write", "0s[sx1@0] 1s[sx2] 2p[px2@0]").witness.why == (
        "1 was acknowledged at offset 0 of x, 2 was polled there, and it never was"
    )
    assert verdict_on("no-poll-skip", "0s[sx1@0,sx2@1,sx3@2] 1p[px1@0] 1p[px3@2]").witness.why == (
        "after offset 0 of x came offset 2, and offset 1 lies between them"
    )
    assert verdict_on("no-G1c", "0t[sx1@0,py2@0] 1t[sx2@1,sy2@0]").witness.why == (
        "operation 1 wrote before 2 in x; operation 2 was read by 1 in y"
    )


def test_what_is_not_judged_is_said():
    assert "1 acknowledged sends are unseen" in verdict_on("no-lost-write", "0s[sx1@0,sx2@1] 1p[px1@0]").not_covered[0]
    assert "tell no offset" in verdict_on("no-lost-write", "0s[sx1@0,sx2] 1p[px1@0]").not_covered[0]
    late = verdict_on("no-lost-write", "0s[sx1@0] 0s[sx2@1] 1p[px2@1]")
    assert (late.outcome, late.vacuous, late.work["undecided"]) == (Outcome.UNKNOWN, False, 1)
    assert "nobody is known to have read past them" in late.not_covered[0]
    assert "subscribe" in verdict_on("no-poll-skip", "0u[x] 0p[px1@0] 0p[px2@1]").not_covered[-1]
    for law in LAWS:
        assert verdict_on(law, "0s[sx1]").vacuous, law


@pytest.mark.parametrize(
    ("value", "result", "message"),
    [
        ([["append", "x", 1]], [["append", "x", 1]], "is no micro-operation"),
        ([["send", "x"]], [["send", "x"]], "a send is"),
        ([["send", "x", 1]], [["send", "x", ["a", 1]]], "an offset is a number"),
        ([["send", "x", 1]], [["send", "x", [-1, 1]]], "an offset is a number"),
        ([["send", "x", 1]], [["send", "x", [0, 2]]], "expected .send key .offset value.."),
        ([["send", "x", 1]], [["send", "y", [0, 1]]], "expected .send key .offset value.."),
        ([["send", "x", 1]], [["poll", {}]], "other micro-operations"),
        ([["poll"]], [["poll", {"x": 3}]], "a poll returns"),
        ([["poll"]], [["poll", {"x": [[1]]}]], "a poll returns pairs"),
        ([["poll"]], [["poll", 7]], "a poll returns"),
        (3, 3, "takes a list of micro-operations"),
    ],
)
def test_what_is_no_such_log_is_one_line(value, result, message):
    collector = EventCollector()
    collector.add(0, EventKind.INVOKE, "txn", None, value, 1)
    collector.add(0, EventKind.OK, "txn", None, result, 2)
    with pytest.raises(InputError, match=f"^a file: row [12]: .*{message}"):
        judge_operations("a file", collector.log("row "), Question(model="kafka"))


def test_a_budget_that_runs_out_leaves_undecided_what_is_not_violated():
    line = " ".join(f"0s[sx{n}@{n}]" for n in range(3000))
    for laws in ((), LAWS):
        for verdict in judge_kafka_log(log_of(parsed(line)), laws, budget_s=0):
            assert (verdict.outcome, verdict.vacuous) == (Outcome.UNKNOWN, False), verdict.law
            assert verdict.not_covered == ("the budget ran out",)
    assert {verdict.outcome for verdict in judge_kafka_log(log_of(parsed(line)), ("no-duplicate",), budget_s=600)} == {
        Outcome.HOLDS
    }


def test_a_seek_to_the_beginning_is_read_from_an_edn_log(tmp_path):
    edn = tmp_path / "kafka.edn"
    ends = ["{:type :%s, :process 1, :f :assign, :value [5]%s}", "{:type :%s, :process 1, :f :poll, :value %s}"]
    sends = (
        "{:type :invoke, :process 0, :f :send, :value [[:send 5 1] [:send 5 2]]}{:type :ok, :process 0, :f "
        ":send, :value [[:send 5 [0 1]] [:send 5 [1 2]]]}"
    )
    for seek, outcome in (
        (", :seek-to-beginning? true", Outcome.VIOLATED),
        (", :seek-to-beginning? false", Outcome.UNKNOWN),
    ):
        edn.write_text(
            sends
            + ends[0] % ("invoke", seek)
            + ends[0] % ("ok", seek)
            + ends[1] % ("invoke", "[[:poll]]")
            + ends[1] % ("ok", "[[:poll {5 [[1 2]]}]]")
        )
        (found,) = judge_operations("edn", read_edn_operations(edn), Question(laws=("no-lost-write",)))
        assert found.outcome is outcome


def test_an_edn_log_and_the_rows_of_a_history_say_the_same(tmp_path):
    edn = tmp_path / "kafka.edn"
    edn.write_text("""{:index 0, :type :invoke, :process 0, :f :txn, :value [[:send 5 1] [:poll]]}
{:index 1, :type :invoke, :process :nemesis, :f :kill, :value nil}
{:index 2, :type :ok, :process 0, :f :txn, :value [[:send 5 [0 1]] [:poll {6 [[0 2]]}]]}
{:index 3, :type :invoke, :process 1, :f :txn, :value [[:poll] [:send 6 2]]}
{:index 4, :type :ok, :process 1, :f :txn, :value [[:poll {5 [[0 1]]}] [:send 6 [0 2]]], :rebalance-log []}
{:index 5, :type :invoke, :process 1, :f :debug-topic-partitions, :value [5 6]}
{:index 6, :type :info, :process 1, :f :debug-topic-partitions, :value {5 {}}}
""")
    from_edn = judge_operations("edn", read_edn_operations(edn), Question())
    history = parse_history(
        '0(txn:[["send",5,1],["poll"]] 0):[["send",5,[0,1]],["poll",{"6":[[0,2]]}]]'
        ' 1(txn:[["poll"],["send",6,2]] 1):[["poll",{"5":[[0,1]]}],["send",6,[0,2]]]'
    )
    from_rows, _ = judge(in_memory("rows", history.batches, history.names), Question())
    for verdicts in (from_edn, from_rows):
        assert [verdict.law for verdict in verdicts if verdict.witness] == ["no-phantom", "no-wr-cycle"]
    named, _ = judge(in_memory("rows", history.batches, history.names), Question(laws=("no-phantom",)))
    assert [(verdict.law, verdict.outcome) for verdict in named] == [("no-phantom", Outcome.VIOLATED)]


# The second judge: each analysis as its sentence says it.


def sends_of(operation):
    return [
        (key, *pairs[0], *(() if len(pairs[0]) == 2 else (None,)))
        for kind, key, pairs in operation["mops"]
        if kind == "s"
    ]


def polls_of(operation):
    return [
        (key, o, v)
        for kind, key, pairs in operation["mops"]
        if kind == "p" and operation["end"] != EventKind.FAIL
        for v, o in pairs
    ]


def moved_by_others(operations, at):
    """Whether the process of an operation has subscribed: a rebalance may come at any time."""
    before = [
        op["f"]
        for op in operations[:at]
        if op["process"] == operations[at]["process"]
        and (op["f"] == "subscribe" or (op["f"] == "assign" and op["end"] == EventKind.OK))
    ]
    return before[-1:] == ["subscribe"]


def brute(operations):  # noqa: C901
    """law → number of violations; of cycles only whether there is one."""
    polled = {t for op in operations for t in polls_of(op)}
    writers = {}
    for at, op in enumerate(operations):
        for k, v, _ in sends_of(op):
            writers.setdefault((k, v), []).append(at)
    possible = {what: [at for at in rows if operations[at]["end"] != EventKind.FAIL] for what, rows in writers.items()}
    seen = {(k, v) for k, _, v in polled}  # a transaction of which a part was seen has committed as a whole
    committed = {
        at
        for at, op in enumerate(operations)
        if op["end"] == EventKind.OK
        or (op["end"] == EventKind.INFO and any((k, v) in seen and possible[k, v] == [at] for k, v, _ in sends_of(op)))
    }
    ok = [op for at, op in enumerate(operations) if at in committed]
    tells = {(k, o, v) for op in ok for k, v, o in sends_of(op) if o is not None} | polled
    stretches = []
    found = dict.fromkeys(LAWS, 0)
    found["consistent-offsets"] = sum(
        len({v for k, o, v in tells if (k, o) == place}) > 1 for place in {(k, o) for k, o, _ in tells}
    )
    found["no-duplicate"] = sum(
        len({o for k, o, v in tells if (k, v) == what}) > max(1, len(possible.get(what, ())))
        for what in {(k, v) for k, _, v in tells}
    )
    for at, op in enumerate(operations):
        for k, _, v in polls_of(op):
            found["no-phantom"] += (k, v) not in writers or min(writers[k, v]) > at
            found["no-G1a"] += (k, v) in writers and not possible[k, v]
            found["no-precommitted-read"] += op["f"] == "txn" and set(writers.get((k, v), ())) == {at}

    def judge_pair(k, low, high, fall, skip):
        if "poll" in fall:
            stretches.append((k, low, high))
        found[fall] += high <= low
        if skip:
            found[skip] += any(k == k2 and low < o < high for k2, o, _ in tells)

    def placed(op):
        for k, v, o in sends_of(op):
            places = {o2 for k2, o2, v2 in tells if (k, v) == (k2, v2)}
            told = o if op["at"] in committed else None
            yield k, told if told is not None or len(places) != 1 or len(writers[k, v]) != 1 else min(places)

    completed = [{**op, "at": at} for at, op in enumerate(operations) if op["end"] != EventKind.FAIL]
    for op in completed:
        for key in "xy":
            polls = [{**op, "mops": [mop]} for mop in op["mops"]] if moved_by_others(operations, op["at"]) else [op]
            for poll in polls:
                for low, high in itertools.pairwise(o for k, o, _ in polls_of(poll) if k == key):
                    judge_pair(key, low, high, "no-int-nonmonotonic-poll", "no-int-poll-skip")
            offsets = [o for k, o in placed(op) if k == key]
            for low, high in itertools.pairwise(offsets):
                if low is not None and high is not None:
                    judge_pair(key, low, high, "no-int-nonmonotonic-send", "no-int-send-skip")
    for (i, first), (j, second) in itertools.combinations(enumerate(operations), 2):
        if first["process"] != second["process"] or {first["end"], second["end"]} != {EventKind.OK}:
            continue
        same = [(at, op) for at, op in enumerate(operations) if op["process"] == first["process"]]
        between = [op for at, op in same if i < at < j]
        for key in "xy":
            low = [o for k, o, _ in polls_of(first) if k == key]
            high = [o for k, o, _ in polls_of(second) if k == key]
            nearer = any(k == key for op in between for k, _, _ in polls_of(op))
            moves = [op for at, op in same if at < j and op["f"] in ("assign", "subscribe")]
            settled = [op for op in moves if op["f"] == "subscribe" or op["end"] == EventKind.OK]
            was_subscribed = any(op["f"] == "subscribe" for at, op in same if at < i) and any(
                op["f"] == "assign" for op in between
            )
            loose = bool(settled) and settled[-1]["f"] == "subscribe"
            reset = any(
                op["f"] in ("subscribe", "crash")
                or op.get("seeks")
                or (op["f"] == "assign" and (key not in op["keys"] or op["end"] != EventKind.OK))
                or (op["end"] != EventKind.OK and any(kind == "p" for kind, *_ in op["mops"]))
                for op in between
            )
            before = [
                op
                for at, op in same
                if at < i and (op["f"] == "subscribe" or (op["f"] == "assign" and op["end"] == EventKind.OK))
            ]
            was_subscribed = (
                bool(before) and before[-1]["f"] == "subscribe" and any(op["f"] == "assign" for op in between)
            )
            if low and high and not (nearer or loose or reset or was_subscribed):
                judge_pair(key, low[-1], high[0], "no-nonmonotonic-poll", "no-poll-skip")
    for first, second in itertools.combinations(completed, 2):
        between = completed[completed.index(first) + 1 : completed.index(second)]
        for key in "xy" if first["process"] == second["process"] else "":
            low, high = ([o for k, o in placed(op) if k == key and o is not None] for op in (first, second))
            nearer = any(
                k == key and o is not None for op in between if op["process"] == first["process"] for k, o in placed(op)
            )
            if low and high and not nearer:
                judge_pair(key, low[-1], high[0], "no-nonmonotonic-send", None)
    for (i, first), (j, second) in itertools.combinations(enumerate(operations), 2):
        if not (
            first.get("seeks")
            and first["process"] == second["process"]
            and first["end"] == second["end"] == EventKind.OK
        ):
            continue
        between = [op for at, op in enumerate(operations) if i < at < j and op["process"] == first["process"]]
        for key in first["keys"]:
            high = [o for k, o, _ in polls_of(second) if k == key]
            ends = any(
                op["f"] in ("subscribe", "crash")
                or op.get("seeks")
                or (op["f"] == "assign" and (key not in op["keys"] or op["end"] != EventKind.OK))
                or (op["end"] != EventKind.OK and any(kind == "p" for kind, *_ in op["mops"]))
                or (op["end"] == EventKind.OK and any(k == key for k, _, _ in polls_of(op)))
                for op in between
            )
            if high and not ends:
                stretches.append((key, -1, high[0]))
    for op in ok:
        for k, v, o in sends_of(op):
            if o is None or any((k, v) == (k2, v2) and (o == o2 or len(possible[k, v]) == 1) for k2, o2, v2 in polled):
                continue
            found["no-lost-write"] += any((k, o) == (k2, o2) for k2, o2, _ in polled) or any(
                k == k2 and low < o < high for k2, low, high in stretches
            )
    ww, wr = edges(operations, tells, {what: rows[0] for what, rows in possible.items() if len(rows) == 1})
    for law, some in (("no-G0", ww), ("no-wr-cycle", wr)):
        reach = closure(some)
        found[law] = any((a, a) in reach for a, _ in some)
    reach = closure(ww | wr)
    found["no-G1c"] = any((b, a) in reach for a, b in wr)
    return found


def edges(operations, tells, writer):
    def node(k, v):
        return writer[k, v]

    sound = [
        (k, o, v)
        for k, o, v in tells
        if (k, v) in writer
        and operations[writer[k, v]]["end"] != EventKind.FAIL
        and sum((k, o) == (k2, o2) for k2, o2, _ in tells) == 1
        and sum((k, v) == (k2, v2) for k2, _, v2 in tells) == 1
    ]
    ww = {(node(k, v), node(k, w)) for k, o, v in sound for k2, p, w in sound if k == k2 and o < p}
    wr = {
        (node(k, v), at)
        for at, op in enumerate(operations)
        for k, _, v in polls_of(op)
        if (k, v) in writer and operations[writer[k, v]]["end"] != EventKind.FAIL
    }
    return {(a, b) for a, b in ww if a != b}, {(a, b) for a, b in wr if a != b}


def closure(pairs):
    reach = set(pairs)
    while True:
        more = {(a, d) for a, b in reach for c, d in pairs if b == c} - reach
        if not more:
            return reach
        reach |= more


def generated(rng):
    """Operations against two true logs, with a wrong answer now and then."""
    logs, positions, operations = {"x": [], "y": []}, {}, []
    values = {"x": itertools.count(1), "y": itertools.count(1)}
    wrong = rng.choice([0.0, 0.05, 0.2])
    for _ in range(rng.randrange(2, 18)):
        process, function = (
            rng.randrange(3),
            rng.choice(["txn"] * 4 + ["send", "poll", "poll", "assign", "subscribe", "crash"][: rng.choice([7, 10])]),
        )
        operation = {
            "process": process,
            "f": function,
            "mops": [],
            "end": rng.choice([EventKind.OK] * 8 + [EventKind.FAIL, EventKind.INFO]),
        }
        if function in ("assign", "subscribe"):
            operation["keys"] = rng.sample("xy", rng.randrange(1, 3))
            operation["seeks"] = function == "assign" and rng.random() < 0.3
        elif function != "crash":
            for _ in range(rng.randrange(1, 4)):
                kind = {"send": "s", "poll": "p"}.get(function) or rng.choice("sp")
                key = rng.choice("xy")
                if kind == "s":
                    value = next(values[key]) if rng.random() > wrong / 2 else rng.randrange(1, 4)
                    if operation["end"] == EventKind.OK or rng.random() < 0.5:
                        logs[key].append(value)
                    offset = len(logs[key]) - 1 if rng.random() > wrong else rng.randrange(4)
                    operation["mops"].append(
                        ("s", key, [(value, offset) if rng.random() < 0.9 and offset >= 0 else (value,)])
                    )
                    continue
                at = positions.get((process, key), 0) if rng.random() > wrong else rng.randrange(4)
                taken = logs[key][at : at + rng.randrange(1, 6)]
                pairs = [
                    (value if rng.random() > wrong / 3 else rng.randrange(1, 9), at + i)
                    for i, value in enumerate(taken)
                ]
                if len(pairs) > 2 and rng.random() < 2 * wrong:
                    del pairs[1]
                positions[process, key] = at + len(taken) + (rng.random() < wrong)
                operation["mops"].append(("p", key if pairs else "", pairs))
        operations.append(operation)
    return operations


def interleaved(rng):
    """Transactions whose sends got their offsets in any order, and polls of what is still to come: where circles
    are."""
    width, operations = rng.randrange(2, 6), []
    mops = [("s", key, [value]) for key in "xy" for value in range(width)] + [("p", key, []) for key in "xy" * 3]
    rng.shuffle(mops)
    order = {key: rng.sample(range(width), width) for key in "xy"}
    while mops:
        taken, mops = mops[: rng.randrange(1, 5)], mops[4:]
        told = []
        for kind, key, pairs in taken:
            if kind == "s":
                told.append(("s", key, [(pairs[0], order[key].index(pairs[0]))]))
                continue
            at, end = sorted((rng.randrange(width), rng.randrange(1, width + 1)))
            told.append(("p", key, [(order[key][o], o) for o in range(at, end)]))
        told = [(kind, key if pairs else "", pairs) for kind, key, pairs in told]
        kinds = {kind for kind, *_ in told}
        function = "txn" if len(kinds) > 1 or rng.random() < 0.7 else {"s": "send", "p": "poll"}[kinds.pop()]
        end = rng.choice([EventKind.OK] * 6 + [EventKind.FAIL, EventKind.INFO])
        operations.append({"process": rng.randrange(3), "f": function, "mops": told, "end": end})
    return operations


@pytest.mark.parametrize("number", [1000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_verdicts_agree_with_quantifiers_over_generated_logs(number):
    broken = dict.fromkeys(LAWS, 0)
    held = dict.fromkeys(LAWS, 0)
    for seed in range(number):
        operations = (generated if seed % 2 else interleaved)(random.Random(seed))
        expected = brute(operations)
        for verdict in judge_kafka_log(log_of(operations), LAWS):
            law = verdict.law
            counted = verdict.work["violations"]
            counted = bool(counted) if law in ("no-G0", "no-wr-cycle", "no-G1c") else counted
            assert counted == expected[law], (seed, law, operations)
            assert (verdict.outcome is Outcome.VIOLATED) == bool(expected[law]), (seed, law)
            broken[law] += verdict.outcome is Outcome.VIOLATED
            held[law] += verdict.outcome is Outcome.HOLDS
    assert min(broken.values()) >= 4, list(broken.items())
    assert min(held.values()) >= 20, list(held.items())


def test_a_witness_shows_what_a_poll_of_an_operation_that_failed_returned():
    collector = EventCollector()
    for row, (process, end, function, told) in enumerate(
        [(0, EventKind.OK, "send", ("send", "x", (0, 1))), (1, EventKind.FAIL, "poll", ("poll", {"x": ((0, 2),)}))]
    ):
        asked = ("send", "x", 1) if function == "send" else ("poll",)
        collector.add(process, EventKind.INVOKE, function, None, (asked,), 2 * row)
        collector.add(process, end, function, None, (told,), 2 * row + 1)
    verdicts = {one.law: one for one in judge_kafka_log(collector.log("row "))}
    shown = verdicts["consistent-offsets"].witness.operations
    assert [one["outcome"] for one in shown] == ["ok", "fail"]
    assert "2" in str(shown[1]["result"])
