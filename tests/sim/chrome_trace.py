"""The Trace Event Format as Perfetto reads it, as a list of complaints: what an importer drops, misplaces or misreads.

Object form. Every event: ``ph`` known, ``name`` text, ``pid`` an integer; all but metadata a finite ``ts`` that is not
negative. ``X``: a ``dur``, likewise, and slices of one thread nested or apart. ``i``: a scope. ``b`` and ``e``: ``cat``
and ``id`` (an integer or text), which with the process name one asynchronous track, balanced, nested, never ending
before they begin. ``M``: a known name with its argument, and every process and thread that has slices is named once.
"""

from __future__ import annotations

import math
from collections import defaultdict

ARGUMENT_OF = {
    "process_name": "name",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}
CLOSE_US = 0.01
"""Times are rounded to nanoseconds."""


def complaints(trace) -> list[str]:
    """What is wrong with a trace; nothing, if it is well-formed."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["not the object form: an object with a list traceEvents"]
    found = [] if trace.get("displayTimeUnit") in ("ms", "ns") else ["displayTimeUnit is neither ms nor ns"]
    for place, event in enumerate(trace["traceEvents"]):
        found += [f"event {place}: {what}" for what in _of_event(event)]
    if not found:
        found = [*_names(trace["traceEvents"]), *_slices(trace["traceEvents"]), *_tracks(trace["traceEvents"])]
    return found


def _is_integer(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _of_event(event):
    if not isinstance(event, dict):
        yield "not an object"
        return
    phase = event.get("ph")
    if phase not in ("X", "i", "b", "e", "M"):
        yield f"phase {phase!r} is unknown here"
        return
    if not isinstance(event.get("name"), str) or not event["name"]:
        yield "no name"
    if not _is_integer(event.get("pid")):
        yield "pid is not an integer"
    if not isinstance(event.get("args", {}), dict):
        yield "args is not an object"
    if phase == "M":
        argument = ARGUMENT_OF.get(event.get("name"))
        if argument is None or argument not in event.get("args", {}):
            yield "metadata of no known kind, or without its argument"
        if event.get("name", "").startswith("thread") and not _is_integer(event.get("tid")):
            yield "tid is not an integer"
        return
    if not _is_integer(event.get("tid")):
        yield "tid is not an integer"
    if not _is_time(event.get("ts")):
        yield "ts is not a time in microseconds"
    if phase == "X" and not _is_time(event.get("dur")):
        yield "dur is not a time in microseconds"
    if phase == "i" and event.get("s") not in ("g", "p", "t"):
        yield "an instant without scope"
    if phase in "be" and (not isinstance(event.get("cat"), str) or not isinstance(event.get("id"), int | str)):
        yield "an asynchronous event without cat or id"


def _names(events):
    named = defaultdict(int)
    for event in events:
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name"):
            named[event["pid"], event["tid"] if event["name"] == "thread_name" else None] += 1
    yield from (f"{key} is named {times} times" for key, times in named.items() if times != 1)
    used = {(event["pid"], None) for event in events if event["ph"] != "M"}
    used |= {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    yield from (f"{key} has no name" for key in sorted(used - set(named), key=str))


def _slices(events):
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
    for thread, slices in threads.items():
        ends = []
        for begin, minus in sorted(slices):
            while ends and ends[-1] <= begin + CLOSE_US:
                ends.pop()
            if ends and begin - minus > ends[-1] + CLOSE_US:
                yield f"thread {thread}: a slice at {begin} overlaps one that it does not lie in"
            ends.append(begin - minus)


def _tracks(events):
    is_open = defaultdict(list)
    for event in events:
        if event["ph"] not in "be":
            continue
        track = is_open[event["pid"], event["cat"], str(event["id"])]
        if event["ph"] == "b":
            if track and event["ts"] < track[-1][1]:
                yield f"track {event['id']}: {event['name']} begins before what it lies in"
            track.append((event["name"], event["ts"]))
        elif not track or track[-1][0] != event["name"]:
            yield f"track {event['id']}: {event['name']} ends and is not the last that began"
        elif event["ts"] < track.pop()[1]:
            yield f"track {event['id']}: {event['name']} ends before it begins"
    yield from (f"track {key}: {len(left)} never end" for key, left in is_open.items() if left)
