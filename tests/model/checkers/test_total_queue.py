"""A queue without an order: each anomaly and its near miss, and a second judge that assigns elements one by one."""

import random

import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge, judge_operations
from orderlab.model.checkers.linearizability.operations import EventCollector, operations_of_history
from orderlab.model.checkers.total_queue import LAWS, judge_total_queue
from orderlab.model.errors import InputError
from orderlab.model.history.events import EventKind
from orderlab.model.history.jepsen import read_edn_operations
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome, overall


def log_of(line):
    history = parse_history(line)
    return operations_of_history("a line", history.batches, history.names)


def verdict_on(law, line):
    (found,) = judge_total_queue(log_of(line), (law,))
    return found


# law, known-bad, rows of the operations that show it, near miss and its outcome
ANOMALIES = [
    ("no-lost-element", "0(enq:1 0) 0(drain 0):[]", [[0, 1]], "0(enq:1 0) 0(drain 0):[1]", Outcome.HOLDS),
    ("no-lost-element", "0(enq:1 0) 0(deq 0):null", [[0, 1]], "0(enq:1 0? 0(deq 0):null", Outcome.UNKNOWN),
    ("no-lost-element", "0(enq:1 0) 0(deq 0):null", [[0, 1]], "0(enq:1 0)", Outcome.UNKNOWN),
    ("no-lost-element", "0(enq:1 0) 0(deq 0):null", [[0, 1]], "0(enq:1 1(deq 0) 1):null", Outcome.UNKNOWN),
    ("no-lost-element", "0(enq:1 0) 0(deq 0):null", [[0, 1]], "0(enq:1 0) 1(deq 1? 0(deq 0):null", Outcome.UNKNOWN),
    (
        "no-lost-element",
        "0(enq:1 0) 0(enq:2 0) 1(deq 1? 0(drain 0):[]",
        [[2, 3]],
        "0(enq:1 0! 0(drain 0):[]",
        Outcome.UNKNOWN,
    ),
    (
        "no-lost-element",
        "0(enq:1 0) 0(enq:1 0) 0(drain 0):[1]",
        [[2, 3]],
        "0(enq:1 0) 0(enq:1 0) 0(drain 0):[1,1]",
        Outcome.HOLDS,
    ),
    ("no-unexpected-element", "0(deq 0):1", [[0, 1]], "0(enq:1 0? 0(deq 0):1", Outcome.HOLDS),
    ("no-unexpected-element", "0(enq:1 0! 0(deq 0):1", [[2, 3]], "0(enq:1 0) 0(deq 0):1", Outcome.HOLDS),
    (
        "no-duplicate-element",
        "0(enq:1 0) 0(deq 0):1 1(deq 1):1",
        [[0, 1], [2, 3], [4, 5]],
        "0(enq:1 0) 0(enq:1 0? 0(deq 0):1 1(deq 1):1",
        Outcome.HOLDS,
    ),
]


@pytest.mark.parametrize(("law", "bad", "rows", "near_miss", "outcome"), ANOMALIES)
def test_the_anomaly_is_found_and_its_near_miss_is_not(law, bad, rows, near_miss, outcome):
    found = verdict_on(law, bad)
    assert found.outcome is Outcome.VIOLATED
    assert [operation["rows"] for operation in found.witness.operations] == rows
    assert verdict_on(law, near_miss).outcome is outcome


def test_what_is_left_in_the_queue_is_no_loss_and_no_success():
    found = verdict_on("no-lost-element", "0(enq:1 0) 0(enq:2 0) 0(deq 0):1")
    assert (found.outcome, found.vacuous) == (Outcome.UNKNOWN, False)
    assert "let the log end with a drain" in found.not_covered[0]
    assert verdict_on("no-lost-element", "0(enq:1 0? 0(deq 0):1").work["recovered"] == 1


def test_a_queue_is_judged_by_its_order_unless_asked_otherwise(tmp_path):
    """A log as Jepsen's queue tests write it, with drains that return lists."""
    edn = tmp_path / "queue.edn"
    edn.write_text("""{:type :invoke, :f :enqueue, :value 1, :process 0}
{:type :ok, :f :enqueue, :value 1, :process 0}
{:type :invoke, :f :enqueue, :value 2, :process 0}
{:type :ok, :f :enqueue, :value 2, :process 0}
{:type :invoke, :f :dequeue, :value nil, :process 1}
{:type :fail, :f :dequeue, :value nil, :process 1, :error :exhausted}
{:type :info, :f :start, :process :nemesis, :value nil}
{:type :invoke, :f :drain, :value nil, :process 1}
{:type :ok, :f :drain, :value [2 1], :process 1}
""")
    log = read_edn_operations(edn)
    (ordered,) = judge_operations("log", log, Question())
    assert (ordered.law, ordered.outcome) == ("linearizability", Outcome.VIOLATED)
    told = judge_operations("log", log, Question(model="total-queue"))
    assert [verdict.law for verdict in told] == list(LAWS)
    assert overall(told) is Outcome.HOLDS
    (named,) = judge_operations("log", log, Question(laws=("no-duplicate-element",)))
    assert named.outcome is Outcome.HOLDS
    with pytest.raises(InputError, match="--law fifo: the operations of --model queue are judged by linearizability"):
        judge_operations("log", log, Question(laws=("fifo",)))


def test_a_budget_that_ran_out_accuses_nobody():
    history = parse_history("0(enq:1 0) 1(deq 0(drain 0):[] 1):1").split([5])
    question = Question(laws=("no-lost-element",), budget_s=0.0)
    (found,), _ = judge(in_memory("a line", history.batches, history.names), question)
    assert (found.outcome, found.vacuous) == (Outcome.UNKNOWN, False)
    log = log_of(" ".join(f"0(enq:{value} 0)" for value in range(1100)) + " 0(drain 0):[]")
    for found in judge_total_queue(log, budget_s=0):
        assert (found.outcome, found.vacuous, found.not_covered) == (Outcome.UNKNOWN, False, ("the budget ran out",))


def test_what_no_queue_has_is_named():
    with pytest.raises(InputError, match="row 0: total-queue has no operation 'read'"):
        judge_total_queue(log_of("0(read 0):1"))
    with pytest.raises(InputError, match="row 1: a drain returns the values"):
        judge_total_queue(log_of("0(drain 0):1"))


def brute(operations):
    """Violations by law: elements are matched one by one, greedily; every match is as good as another."""
    fate = {"lost": 0, "undecided": 0, "unexpected": 0, "extra": 0}
    takers = sum(end == EventKind.INFO for f, _, end in operations if f == "dequeue")
    taken = [
        (at, v) for at, (f, v, end) in enumerate(operations) if f == "dequeue" and end == EventKind.OK and v is not None
    ]
    acknowledged = [(at, v) for at, (f, v, end) in enumerate(operations) if f == "enqueue" and end == EventKind.OK]
    maybe = [v for f, v, end in operations if f == "enqueue" and end == EventKind.INFO]
    tried = {v for _, v in acknowledged} | set(maybe)
    left = list(acknowledged)
    unexpected = set()
    for _, value in taken:
        mine = next((pair for pair in left if pair[1] == value), None)
        if mine is not None:
            left.remove(mine)
        elif value in maybe:
            maybe.remove(value)
        elif value in tried:
            fate["extra"] += 1
        else:
            unexpected.add(value)
    late = max(
        (at for at, (f, v, end) in enumerate(operations) if f == "dequeue" and v is None and end == EventKind.OK),
        default=-1,
    )
    lost = sum(at < late for at, _ in left)
    fate |= {
        "lost": max(0, lost - takers),
        "undecided": len(left) - lost + min(lost, takers),
        "unexpected": len(unexpected),
    }
    return fate


def test_verdicts_agree_with_matching_elements_one_by_one():
    seen = {law: dict.fromkeys(Outcome, 0) for law in LAWS}
    for seed in range(1500):
        rng, operations, collector = random.Random(seed), [], EventCollector()
        for at in range(rng.randrange(1, 12)):
            end = rng.choice([EventKind.OK] * 6 + [EventKind.FAIL, EventKind.INFO])
            function = rng.choice(["enqueue", "dequeue"])
            value = rng.randrange(4) if function == "enqueue" or rng.random() < 0.7 else None
            operations.append((function, value, end))
            collector.add(0, EventKind.INVOKE, function, None, value if function == "enqueue" else None, 2 * at)
            collector.add(0, end, function, None, value, 2 * at + 1)
        fate = brute(operations)
        lost, unexpected, extra = judge_total_queue(collector.log("row "))
        assert lost.work["violations"] == fate["lost"], (seed, operations)
        assert lost.work.get("undecided", 0) == (0 if fate["lost"] else fate["undecided"]), (seed, operations)
        assert unexpected.work["violations"] == fate["unexpected"], (seed, operations)
        assert (extra.outcome is Outcome.VIOLATED) == bool(fate["extra"]), (seed, operations)
        for verdict in (lost, unexpected, extra):
            seen[verdict.law][verdict.outcome] += 1
    assert min(count for outcomes in seen.values() for count in outcomes.values()) > 40, seen
