"""Each fast algorithm agrees with the general search, and the search with trying every order."""

import itertools
import random

import pytest

from orderlab.model.checkers.linearizability.decide import decide
from orderlab.model.checkers.linearizability.objects import IMPOSSIBLE, MODELS, calls_by_key
from orderlab.model.checkers.linearizability.operations import NEVER, EventCollector
from orderlab.model.checkers.linearizability.search import search
from orderlab.model.history.events import EventKind
from orderlab.model.verdict import Outcome


def generated(model, rng, operations, processes, info=0.15, spoilt=0.3, distinct=True):
    """A history of an object that works, in which some results may then be spoilt and some outcomes are unknown."""
    log, state, fresh = EventCollector(), MODELS[model].initial, itertools.count(1)
    idle, running, done = list(range(processes)), [], 0
    while done < operations or running:
        if idle and done < operations and (not running or rng.random() < 0.5):
            process = idle.pop(rng.randrange(len(idle)))
            function, argument = chosen(model, rng, fresh, distinct)
            log.add(process, EventKind.INVOKE, function, None, argument, len(log) + 1)
            running.append([process, function, argument, None, False])
            done += 1
            continue
        job = rng.choice(running)
        if not job[4]:
            state, job[3], job[4] = applied(model, state, job[1], job[2])
            continue
        process, function, argument, result, _ = job
        running.remove(job)
        if rng.random() < info:
            log.add(process, EventKind.INFO, function, None, argument, len(log) + 1)
            idle.append(process + processes)
            continue
        if rng.random() < spoilt / operations:
            result = other_result(model, rng, result)
        kind = EventKind.FAIL if function == "cas" and result is False else EventKind.OK
        log.add(process, kind, function, None, argument if function == "cas" else result, len(log) + 1)
        idle.append(process)
    return log.log("")


def chosen(model, rng, fresh, distinct):
    value = next(fresh) if distinct else rng.randrange(3)
    if model == "queue":
        return ("enqueue", value) if rng.random() < 0.5 else ("dequeue", None)
    if model == "set":
        return ("add", value) if rng.random() < 0.6 else ("read", None)
    function = rng.choice(["read", "write", "cas"] if model == "cas-register" else ["read", "write"])
    return function, {"read": None, "write": value, "cas": (rng.randrange(3), rng.randrange(3))}[function]


def applied(model, state, function, argument):
    if function == "dequeue":
        return state[1:], (state[0] if state else None), True
    if function == "read":
        return state, (tuple(sorted(state)) if model == "set" else state[0]), True
    if function == "cas" and state[0] != argument[0]:
        return state, False, True
    after = MODELS[model].step(state, function, argument, None)
    return after, argument, True


def other_result(model, rng, result):
    if model == "set":
        return tuple(sorted(set(result or ()) ^ {rng.randrange(1, 4)})) if isinstance(result, tuple) else result
    return rng.choice([None, 1, 2, 3, 4]) if not isinstance(result, tuple) else result


def linearizable_by_trying_all(model, calls):
    """First principles: some order of the completed calls and of any of the others respects time and the object."""
    certain = [call for call in calls if call.returned < NEVER]
    maybe = [call for call in calls if call.returned == NEVER]
    for size in range(len(maybe) + 1):
        for extra in itertools.combinations(maybe, size):
            for order in itertools.permutations([*certain, *extra]):
                if any(later.returned < earlier.invoked for earlier, later in itertools.combinations(order, 2)):
                    continue
                state = model.initial
                for call in order:
                    state = model.step(state, call.function, call.argument, call.result)
                    if state is IMPOSSIBLE:
                        break
                else:
                    return True
    return False


@pytest.mark.parametrize("name", ["register", "cas-register", "queue", "set"])
def test_the_search_agrees_with_trying_every_order(name):
    outcomes = {Outcome.HOLDS: 0, Outcome.VIOLATED: 0}
    for seed in range(300):
        rng = random.Random(f"{name}{seed}")
        log = generated(name, rng, rng.randrange(1, 6), 3, distinct=seed % 2 == 0)
        for calls in calls_by_key(MODELS[name], log).values():
            found = search(MODELS[name], calls).outcome
            assert (found is Outcome.HOLDS) == linearizable_by_trying_all(MODELS[name], calls), seed
            outcomes[found] += 1
    assert min(outcomes.values()) > 15


@pytest.mark.parametrize(
    ("name", "algorithm", "distinct"),
    [
        ("register", "register_search", False),
        ("cas-register", "register_search", False),
        ("queue", "patterns", True),
        ("set", "levels", True),
    ],
)
@pytest.mark.parametrize("info", [0.0, 0.15])
@pytest.mark.parametrize("histories", [200, pytest.param(1200, marks=pytest.mark.exhaustive)])
def test_the_fast_algorithm_agrees_with_the_search(name, algorithm, distinct, info, histories):
    outcomes, fast = {Outcome.HOLDS: 0, Outcome.VIOLATED: 0}, 0
    for seed in range(histories):
        rng = random.Random(f"{name}{info}{seed}")
        log = generated(name, rng, rng.randrange(2, 25), rng.randrange(2, 6), info, 0.8, distinct)
        verdict = decide(name, log)
        slow = [search(MODELS[name], calls) for calls in calls_by_key(MODELS[name], log).values()]
        expected = Outcome.VIOLATED if any(d.outcome is Outcome.VIOLATED for d in slow) else Outcome.HOLDS
        assert verdict.outcome is (Outcome.UNKNOWN if verdict.vacuous else expected), seed
        assert not (verdict.vacuous and expected is Outcome.VIOLATED), seed
        outcomes[expected] += 1
        fast += f"objects_by_{algorithm}" in verdict.work
        if verdict.witness is not None and name != "queue" and name != "set":
            assert [op["rows"] for op in verdict.witness.operations] == [
                log.describe(row)["rows"] for row in slow[0].rows
            ], seed
    assert min(outcomes.values()) > histories // 12
    assert fast > histories // 2


def test_the_witness_of_a_register_ends_the_shortest_prefix_that_has_no_order():
    for seed in range(300):
        rng = random.Random(seed)
        log = generated("register", rng, 12, 4, 0.1, 2.0, distinct=False)
        verdict = decide("register", log)
        if verdict.witness is None:
            continue
        stuck = verdict.witness.operations[0]["rows"][1] - 1  # rows of the collector count from 1
        for end, expected in ((stuck, False), (stuck + 1, True)):
            assert (decide("register", prefix(log, end)).outcome is Outcome.VIOLATED) == expected, seed


def prefix(log, end):
    """The log as if the recording had stopped before position `end`."""
    kept = log.select(log.invoked < end)
    cut = (kept.returned >= end) & (kept.returned < NEVER)
    kept.outcome[cut], kept.returned[cut] = 2, NEVER
    return kept
