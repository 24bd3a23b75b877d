"""The timeline: well-formed for its viewers, bounded by its window, and without a trace in the history."""

import json

import pytest

from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem
from orderlab.sim.systems.timeline import Tracer, parse_window
from tests.sim.chrome_trace import complaints

SETTINGS = {
    "publishers": 40, "rate": 20.0, "brokers": 2, "warm_up_s": 0.1, "duration_s": 0.3, "offline_share": 0.3,
    "faults": "redis-stall@0.2:0:0.05", "drain_s": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def traced():
    sinks = []
    system = P2PSystem(P2PSettings(**SETTINGS), 1, sinks)
    tracer = Tracer(150_000, 350_000)
    tracer.attach(system.world)
    sinks.append(tracer.sink)
    system.run()
    return system, json.loads(json.dumps(tracer.to_json()))


def test_the_history_is_the_same_with_and_without(traced):
    plain = P2PSystem(P2PSettings(**SETTINGS), 1, [])
    plain.run()
    assert traced[0].digest == plain.digest


def test_perfetto_finds_nothing_to_complain_about(traced):
    assert complaints(traced[1]) == []


@pytest.mark.parametrize("settings", [{"qos": 2}, {"publish_qos": "0=0.5 2=0.5"}, {"faults": "broker-crash@0.2:0"}])
def test_nor_in_other_systems(settings):
    sinks = []
    system = P2PSystem(P2PSettings(**{**SETTINGS, **settings}), 1, sinks)
    tracer = Tracer(150_000, 350_000)
    tracer.attach(system.world)
    sinks.append(tracer.sink)
    system.run()
    assert complaints(json.loads(json.dumps(tracer.to_json()))) == []


def _events(*phases):
    """A trace with these events: a phase, and what differs from a well-formed event of it."""
    common = {"name": "x", "pid": 1, "tid": 1, "ts": 10, "cat": "c", "args": {}}
    needs = {"X": {"dur": 5}, "i": {"s": "g"}, "b": {"id": 1}, "e": {"id": 1}}
    named = [
        {"name": f"{what}_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "n"}} for what in ("process", "thread")
    ]
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [*named, *({"ph": ph, **common, **needs[ph], **more} for ph, more in phases)],
    }


@pytest.mark.parametrize(("bad", "complaint", "near_miss"), [
    ([("X", {"dur": -1})], "dur", [("X", {"dur": 0})]),
    ([("X", {"dur": "5"})], "dur", [("X", {"dur": 5.5})]),
    ([("X", {"ts": float("nan")})], "ts", [("X", {"ts": 0})]),
    ([("X", {"pid": "1"})], "pid", [("X", {})]),
    ([("X", {"tid": 2})], "no name", [("X", {"tid": 1})]),
    ([("X", {"name": ""})], "no name", [("X", {"name": "y"})]),
    ([("X", {}), ("X", {"ts": 12})], "overlaps", [("X", {}), ("X", {"ts": 12, "dur": 3}), ("X", {"ts": 15})]),
    ([("i", {"s": "x"})], "scope", [("i", {"s": "t"})]),
    ([("i", {"pid": 2})], "no name", [("i", {"tid": 7})]),
    ([("b", {})], "never end", [("b", {}), ("e", {})]),
    ([("b", {}), ("e", {"id": 2})], "not the last", [("b", {"id": "2"}), ("e", {"id": "2"})]),
    ([("b", {}), ("e", {"ts": 9})], "before it begins", [("b", {}), ("e", {"ts": 11})]),
    ([("b", {}), ("b", {"name": "y"}), ("e", {}), ("e", {"name": "y"})], "not the last",
     [("b", {}), ("b", {"name": "y"}), ("e", {"name": "y"}), ("e", {})]),
    ([("b", {"id": None}), ("e", {"id": None})], "without cat or id", [("b", {}), ("e", {})]),
])  # fmt: skip
def test_the_validation_knows_what_is_wrong(bad, complaint, near_miss):
    assert any(complaint in found for found in complaints(_events(*bad)))
    assert complaints(_events(*near_miss)) == []


def test_everything_is_there_and_within_the_window(traced):
    events = traced[1]["traceEvents"]
    assert {event.get("cat") for event in events} >= {"broker", "redis", "kafka", "message", "fault"}
    names = " ".join(event["name"] for event in events)
    for part in (
        "pack",
        "service",
        "fetch",
        "produce msg.all",
        "round trip",
        "redis-stall",
        "polled from msg.persisted",
    ):
        assert part in names
    assert all(event["ts"] < 350_000 for event in events if "ts" in event)


@pytest.mark.parametrize(("text", "window"), [(None, (100_000, 120_000)), ("0:1.5", (0, 1_500_000))])
def test_a_window_is_read(text, window):
    assert parse_window(text, (0.1, 0.12)) == window


@pytest.mark.parametrize("text", ["1", "2:1", "-1:2", "a:b", "nan:1", "0:inf"])
def test_a_window_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match="END"):
        parse_window(text, (0, 1))
