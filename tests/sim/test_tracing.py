"""The timeline: well-formed for its viewers, bounded by its window, and without a trace in the history."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from sim.systems.tbmq_p2p import P2PSettings, P2PSystem
from sim.tracing import Tracer, parse_window

SETTINGS = {
    "publishers": 40, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.3, "offline_share": 0.3,
    "faults": "redis-stall@0.2:0:0.05", "drain_s": 1.0,
}  # fmt: skip
KEYS = {"X": {"name", "ts", "dur", "pid", "tid", "cat", "args"}, "i": {"name", "ts", "pid", "tid", "s", "cat", "args"},
        "b": {"name", "ts", "pid", "tid", "id", "cat", "args"}, "e": {"name", "ts", "pid", "tid", "id", "cat", "args"},
        "M": {"name", "pid", "args"}}  # fmt: skip


@pytest.fixture(scope="module")
def traced():
    sinks = []
    system = P2PSystem(P2PSettings(**SETTINGS), 1, sinks)
    tracer = Tracer(150_000, 350_000)
    tracer.attach(system.fabric)
    sinks.append(tracer.sink)
    system.run()
    return system, json.loads(json.dumps(tracer.to_json()))


def test_the_history_is_the_same_with_and_without(traced):
    plain = P2PSystem(P2PSettings(**SETTINGS), 1, [])
    plain.run()
    assert traced[0].digest == plain.digest


def test_every_event_has_what_its_phase_demands(traced):
    _, trace = traced
    for event in trace["traceEvents"]:
        assert KEYS[event["ph"]] <= set(event), event
        assert event["ph"] != "X" or event["dur"] >= 0
    named = {(event["pid"], event.get("tid")) for event in trace["traceEvents"] if event["ph"] == "M"}
    assert {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] == "X"} <= named


def test_spans_of_a_thread_do_not_overlap(traced):
    spans = defaultdict(list)
    for event in traced[1]["traceEvents"]:
        if event["ph"] == "X":
            spans[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for of_thread in spans.values():
        of_thread.sort()
        assert all(end <= begin + 0.01 for (_, end), (begin, _) in pairwise(of_thread))


def test_every_stage_that_begins_ends(traced):
    is_open = defaultdict(list)
    for event in traced[1]["traceEvents"]:
        if event["ph"] == "b":
            is_open[event["id"]].append(event["name"])
        elif event["ph"] == "e":
            assert is_open[event["id"]].pop() == event["name"]
    assert not any(is_open.values())


def test_everything_is_there_and_within_the_window(traced):
    events = traced[1]["traceEvents"]
    assert {event.get("cat") for event in events} >= {"broker", "redis", "kafka", "message", "fault"}
    names = " ".join(event["name"] for event in events)
    for part in ("pack", "service", "fetch", "produce msg.all", "round trip", "redis-stall", "polled from msg.persisted"):
        assert part in names
    assert all(event["ts"] < 350_000 for event in events if "ts" in event)


@pytest.mark.parametrize(("text", "window"), [(None, (100_000, 120_000)), ("0:1.5", (0, 1_500_000))])
def test_a_window_is_read(text, window):
    assert parse_window(text, (0.1, 0.12)) == window


@pytest.mark.parametrize("text", ["1", "2:1", "-1:2", "a:b", "nan:1", "0:inf"])
def test_a_window_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match="END"):
        parse_window(text, (0, 1))
