"""Store histories in one line: what cannot be linearized, with its exact witness, and the near miss that can."""

import pytest

from orderlab.model.checkers.linearizability.decide import decide
from orderlab.model.checkers.linearizability.objects import MODELS, calls_by_key
from orderlab.model.checkers.linearizability.operations import operations_of_history
from orderlab.model.checkers.linearizability.register_search import search_register
from orderlab.model.errors import InputError
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome


def log_of(line):
    history = parse_history(line)
    return operations_of_history("a line", history, history.names)


# object, history without an order, rows of the witness (event ids), near miss
ANOMALIES = [
    # A stale read; the same read while the write is open.
    ("register", "0(write:1 0) 1(read 1):null", [[2, 3]], "0(write:1 1(read 1):null 0)"),
    ("register", "0(write:1 1(read 1):1 2(read 2):null 0)", [[3, 4], [0, 5]], "0(write:1 1(read 1):null "
        "2(read 2):1 0)"),
    # A write of unknown outcome may take effect late, but not twice and not backwards.
    ("register", "0(write:1 0? 1(write:2 1) 2(read 2):1 2(read 2):2", [[6, 7], [0, 1]], "0(write:1 0? 1(write:2 1) "
        "2(read 2):1"),
    ("register", "0(write:1 0! 1(read 1):1", [[2, 3]], "0(write:1 0? 1(read 1):1"),
    ("cas-register", "0(write:1 0) 1(cas:[2,3] 1)", [[2, 3]], "0(write:1 0) 1(cas:[1,3] 1)"),
    ("cas-register", "0(write:1 0) 1(cas:[1,3] 1!", [[2, 3]], "0(write:1 0) 1(cas:[2,3] 1!"),
    ("cas-register", "0(write:1 0) 1(cas:[1,2] 1? 2(read 2):3", [[4, 5], [2, 3]], "0(write:1 0) 1(cas:[1,2] 1? "
        "2(read 2):2"),
    # Nil is the value before the first write, and no other.
    ("cas-register", "0(write:1 0) 1(cas:[null,2] 1)", [[2, 3]], "0(write:1 1(cas:[null,2] 1) 0)"),
    ("register", "0(write:1 0) 0(write:2 0) 1(read 1):null", [[4, 5]], "0(write:1 0) 0(write 0) 1(read 1):null"),
    # Queues: the four patterns.
    ("queue", "0(dequeue 0):1", [[0, 1]], "1(enqueue:1 0(dequeue 0):1 1)"),
    ("queue", "0(dequeue 0):1 1(enqueue:1 1)", [[0, 1], [2, 3]], "0(dequeue 1(enqueue:1 0):1 1)"),
    ("queue", "0(enqueue:1 0) 1(dequeue 1):1 1(dequeue 1):1", [[0, 1], [2, 3], [4, 5]], "0(enqueue:1 0) 1(dequeue "
        "1):1 1(dequeue 1!"),
    (
        "queue",
        "0(enqueue:1 0) 0(enqueue:2 0) 1(dequeue 1):2 1(dequeue 1):1",
        [[0, 1], [2, 3], [4, 5], [6, 7]],
        "0(enqueue:1 1(enqueue:2 0) 1) 1(dequeue 1):2 1(dequeue 1):1",
    ),
    ("queue", "0(enqueue:1 0) 0(enqueue:2 0) 1(dequeue 1):2", [[0, 1], [2, 3], [4, 5]], "0(enqueue:1 0) 0(enqueue:2 "
        "0) 2(dequeue 1(dequeue 1):2"),
    (
        "queue",
        "0(enqueue:1 0) 0(enqueue:2 0) 1(dequeue 1):2 2(dequeue",
        [[0, 1], [2, 3], [4, 5]],
        "0(enqueue:1 0) 0(enqueue:2 0) 1(dequeue 2(dequeue 1):2",
    ),
    ("queue", "0(enqueue:1 0) 1(dequeue 1):null", [[2, 3], [0, 1]], "0(enqueue:1 1(dequeue 1):null 0)"),
    (
        "queue",
        "0(enqueue:1 0) 1(dequeue 0(enqueue:2 0) 2(dequeue 2):1 1):null",
        [[2, 7], [0, 1], [3, 4]],
        "0(enqueue:1 0) 1(dequeue 0(enqueue:2 2(dequeue 2):1 0) 1):null",
    ),
    ("queue", "0(enqueue:1 0! 1(dequeue 1):1", [[2, 3]], "0(enqueue:1 0? 1(dequeue 1):1"),
    # Drains and repeated values go through the search.
    ("queue", "0(enqueue:1 0) 0(enqueue:2 0) 1(drain 1):[2,1]", [[4, 5]], "0(enqueue:1 0) 0(enqueue:2 0) 1(drain "
        "1):[1,2]"),
    ("queue", "0(enqueue:1 0) 0(enqueue:1 0) 1(drain 1):[1,1,1]", [[4, 5]], "0(enqueue:1 0) 0(enqueue:1 0) 1(drain "
        "1):[1,1]"),
    # A drain ends because the queue is empty.
    ("queue", "0(enqueue:1 0) 1(drain 1):[]", [[2, 3]], "0(enqueue:1 1(drain 1):[] 0)"),
    ("queue", "0(enqueue:1 0) 0(enqueue:2 0) 1(drain 1):[1]", [[4, 5]], "0(enqueue:1 0) 1(drain 0(enqueue:2 0) 1):[1]"),
    # Sets: reads form a chain that agrees with time.
    ("set", "0(add:1 0) 1(read 1):[]", [[0, 1], [2, 3]], "0(add:1 1(read 1):[] 0)"),
    ("set", "1(read 1):[1] 0(add:1 0)", [[0, 1], [2, 3]], "1(read 0(add:1 1):[1] 0)"),
    ("set", "1(read 1):[7]", [[0, 1]], "0(add:7 0? 1(read 1):[7]"),
    (
        "set",
        "0(add:1 1(add:2 2(read 2):[1] 3(read 3):[2] 0) 1)",
        [[2, 3], [4, 5], [0, 6], [1, 7]],
        "0(add:1 1(add:2 2(read 2):[1] 3(read 3):[1,2] 0) 1)",
    ),
    ("set", "0(add:1 0) 0(remove:1 0) 1(read 1):[1]", [[4, 5]], "0(add:1 0) 0(remove:1 0? 1(read 1):[1]"),
    ("set", "0(add:1 0) 1(contains:1 1):false", [[2, 3]], "0(add:1 0) 1(contains:1 1):true"),
    ("kv", '0(put.k:"" 0) 1(get.k 1):null', [[2, 3]], '0(put.k:"" 1(get.k 1):null 0)'),
    ("kv", '0(append.k:"a" 0) 1(get.k 1):""', [[2, 3]], '1(get.k 1):"" 0(append.k:"a" 0) 1(get.k 1):"a"'),
    ("kv", '0(put.k:"a" 0) 0(append.k:"b" 0) 1(get.k 1):"a"', [[4, 5]], '0(put.k:"a" 0) 0(append.k:"b" 0? '
        '1(get.k 1):"a"'),
]  # fmt: skip


@pytest.mark.parametrize(("model", "bad", "witness", "near_miss"), ANOMALIES)
def test_the_anomaly_is_found_and_its_near_miss_is_not(model, bad, witness, near_miss):
    found = decide(model, log_of(bad))
    assert found.outcome is Outcome.VIOLATED
    assert [operation["rows"] for operation in found.witness.operations] == witness
    assert found.witness.why
    assert decide(model, log_of(near_miss)).outcome is Outcome.HOLDS


def test_each_key_is_an_object_of_its_own():
    line = "0(write.a:1 0) 1(read.b 1):null 1(read.a 1):null"
    found = decide("register", log_of(line))
    assert (found.witness.key, found.work["objects"], found.work["violated_objects"]) == ("a", 2, 1)


def test_a_budget_ends_in_unknown():
    words = [f"{process}(enqueue:{process % 3}" for process in range(24)]
    words += [f"{process})" for process in range(24)]
    words += ["0(dequeue 0):7"]  # impossible, and only the last operation says so
    found = decide("queue", log_of(" ".join(words)), budget_s=0.05)
    assert found.outcome is Outcome.UNKNOWN
    assert "budget" in found.not_covered[0]


def test_many_indeterminate_writes_of_one_value_cost_one():
    words = [f"{process}(write:1" for process in range(200)] + ["500(write:2 500) 501(read 501):3"]
    calls = next(iter(calls_by_key(MODELS["register"], log_of(" ".join(words))).values()))
    found = search_register(calls)
    assert found.outcome is Outcome.VIOLATED
    assert found.configurations < 1000


def test_values_of_different_types_differ():
    assert decide("register", log_of("0(write:1 0) 1(read 1):true")).outcome is Outcome.VIOLATED
    assert decide("register", log_of("0(write:[1] 0) 1(read 1):[1.0]")).outcome is Outcome.VIOLATED
    assert (
        decide("register", log_of("0(write:1 0? 1(write:true 1? 2(read 2):true 3(read 3):1")).outcome is Outcome.HOLDS
    )
    assert decide("kv", log_of("0(get.a 0):0")).outcome is Outcome.VIOLATED
    assert decide("register", log_of('0(write:1 0) 1(read 1):"1"')).outcome is Outcome.VIOLATED


@pytest.mark.parametrize(
    ("line", "message"), [("0(cas:1 0)", "takes .expected new."), ("0(push:1 0)", "has no operation")]
)
def test_what_the_object_cannot_take_is_named(line, message):
    with pytest.raises(InputError, match=message):
        decide("cas-register", log_of(line))


def test_nothing_to_judge_is_vacuous():
    assert decide("register", log_of("0(write:1 0?")).vacuous


@pytest.mark.parametrize(
    ("model", "line", "message"),
    [
        ("kv", "0(put.a 0)", "row 0: put takes a value"),
        ("queue", "0(enqueue 0) 1(dequeue 1):null", "row 0: enqueue takes a value"),
        ("kv", "0(append.a:5 0)", "row 0: append takes a string"),
        ("set", "0(read 0):5", "row 1: read returns the elements"),
        ("set", "0(contains:1 0):1", "row 1: contains returns true or false"),
        ("queue", "0(drain 0):5", "row 1: drain returns the values"),
        ("cas-register", "0(cas:5 0)", "row 0: cas takes"),
    ],
)
def test_what_an_object_cannot_take_or_give_is_said(model, line, message):
    with pytest.raises(InputError, match=message):
        decide(model, log_of(line))


def test_an_append_to_what_is_no_string_cannot_have_happened():
    assert decide("kv", log_of('0(put.a:5 0) 0(append.a:"x" 0)')).outcome is Outcome.VIOLATED
    assert decide("kv", log_of('0(put.a:5 0) 0(append.a:"x" 0!')).vacuous
