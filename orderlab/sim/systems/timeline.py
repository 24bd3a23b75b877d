"""A run as a timeline: Chrome trace events of a bounded window, for Perfetto or chrome://tracing.

Four kinds of rows: every message with its stages, the packs of each consumer, the services of each Redis node and Kafka
broker (of durable streams, the batches that each node stores, copies and replays), and the round trips of the drivers'
flushes; faults are instants over all of them. The parts of a system call an observer where they have one and pay one
comparison where they have none; nothing that an observer does reaches back, so a traced run has the same history.
Format: "Trace Event Format" of the Chromium project, JSON object form; times in microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from orderlab.model.history.events import EventBatch, EventKind
from orderlab.sim.drivers.pipelined import PipelinedDriver
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.world import World
from orderlab.sim.streams.system import StreamsWorld

OnService = Callable[[str, float, float, int], None]
EVENTS_MAX = 400_000
"""More make viewers slow; what comes later is counted and left out."""
_POINTS = {
    EventKind.PUBLISH: "published",
    EventKind.PUBLISH_ACKNOWLEDGED: "PUBACK to publisher",
    EventKind.DELIVER: "delivered",
    EventKind.ACKNOWLEDGE: "acknowledged",
}


class Tracer:
    """Observes one system. Give ``sink`` to the system as a sink, ``attach`` before the run, ``to_json`` after it."""

    def __init__(self, begin_us: int, end_us: int) -> None:
        self.begin_us = begin_us
        self.end_us = end_us
        self.left_out = 0
        self._events: list[dict[str, Any]] = []
        self._processes: dict[str, int] = {}
        self._threads: dict[tuple[int, str], int] = {}
        self._lanes: dict[tuple[int, str], list[float]] = defaultdict(list)
        self._stages: dict[int, list[tuple[int, str]]] = defaultdict(list)
        """Per message (publisher, sequence as one number), the instants at which it reached something."""
        self._world: World | StreamsWorld | None = None

    def attach(self, world: World | StreamsWorld) -> None:
        """Observe the parts of ``world``."""
        self._world = world
        if isinstance(world, StreamsWorld):
            world.observe(self._streams_span)
            return
        for node in world.storage.nodes:
            node.on_service = self._after(node.on_service)
        world.kafka.cluster.on_request = self._kafka_request
        world.measured.on_stage = self._stage
        for broker in world.brokers:
            broker.on_pack = self._pack
            if isinstance(broker.driver, PipelinedDriver):
                name = f"broker-{broker.number}"
                broker.driver.on_round_trip = lambda *trip, name=name: self._round_trip(name, *trip)

    # -- observers -----------------------------------------------------------------------------------------

    def _after(self, before: OnService | None) -> OnService:
        """An observer that tells whoever is told already first."""

        def told(node: str, begin_us: float, end_us: float, requests: int) -> None:
            if before is not None:
                before(node, begin_us, end_us, requests)
            self._node_service(node, begin_us, end_us, requests)

        return told

    def _node_service(self, node: str, begin_us: float, end_us: float, requests: int) -> None:
        self._span("Redis", node, "service", begin_us, end_us, {"commands": requests})

    def _kafka_request(self, broker: int, kind: str, begin_us: float, end_us: float, records: int) -> None:
        self._span("Kafka", f"kafka-{broker}", kind, begin_us, end_us, {"records": records})

    def _streams_span(self, node: str, what: str, begin_us: float, end_us: float, messages: int) -> None:
        self._span(node, what, what, begin_us, end_us, {"messages": messages})

    def _pack(self, consumer: str, begin_us: float, end_us: float, records: int) -> None:
        broker, _, topic = consumer.partition("/")
        self._span(broker, topic, "pack", begin_us, end_us, {"records": records})

    def _round_trip(self, broker: str, node: str, begin_us: float, end_us: float, commands: int) -> None:
        self._span(broker, f"flush to {node}", "round trip", begin_us, end_us, {"commands": commands})

    def _stage(self, stage: str, messages: Ints, now_us: int) -> None:
        if self.begin_us <= now_us < self.end_us:
            for message in messages.tolist():
                self._stages[message].append((now_us, f"polled from {stage}"))

    def sink(self, batch: EventBatch) -> None:
        """Take from rows of the history where messages begin and end, and the faults."""
        assert self._world is not None, "attach comes first"
        inside = (batch.time_us >= self.begin_us) & (batch.time_us < self.end_us)
        if not inside.any():
            return
        # what orders messages: their publishers; in streams, topics, of which each has one publisher
        streams = batch.topic if isinstance(self._world, StreamsWorld) else batch.publisher
        count = self._world.traffic.schedule.count
        for row in inside.nonzero()[0].tolist():
            kind, at = EventKind(int(batch.kind[row])), int(batch.time_us[row])
            if kind in _POINTS:
                self._stages[int(batch.sequence[row]) * count + int(streams[row])].append((at, _POINTS[kind]))
            elif kind in (EventKind.FAULT, EventKind.HEAL):
                self._instant(batch, row, at, kind)

    def _instant(self, batch: EventBatch, row: int, at: int, kind: EventKind) -> None:
        assert self._world is not None, "attach comes first"
        what, arguments = "all faults have healed", {}
        if kind is EventKind.FAULT:
            what = str(self._world.names.operations.label(int(batch.operation[row])))
            arguments = {"node": self._world.names.all()[int(batch.node[row])]}
        pid = self._process("faults")
        self._add(
            {"name": what, "ph": "i", "s": "g", "ts": at, "pid": pid, "tid": 1, "cat": "fault", "args": arguments}
        )

    # -- events --------------------------------------------------------------------------------------------

    def _process(self, name: str) -> int:
        return self._processes.setdefault(name, len(self._processes) + 1)

    def _add(self, event: dict[str, Any]) -> None:
        if len(self._events) < EVENTS_MAX:
            self._events.append(event)
        else:
            self.left_out += 1

    def _span(self, process: str, thread: str, name: str, begin: float, end: float, arguments: dict[str, Any]) -> None:
        """A complete event. Spans of a thread that overlap go to lanes of their own, as viewers demand."""
        if end < self.begin_us or begin >= self.end_us:
            return
        pid = self._process(process)
        lanes = self._lanes[pid, thread]
        lane = next((number for number, free in enumerate(lanes) if free <= begin), len(lanes))
        lanes[lane:] = [end, *lanes[lane + 1 :]]
        named = thread if not lane else f"{thread} ({lane + 1})"
        tid = self._threads.setdefault((pid, named), len(self._threads) + 1)
        self._add({
            "name": name, "ph": "X", "ts": round(begin, 3), "dur": round(end - begin, 3), "pid": pid, "tid": tid,
            "cat": process.partition("-")[0].lower(), "args": arguments,
        })  # fmt: skip

    def _message_events(self) -> None:
        """Each message is an asynchronous event, its stages nested in it, from one point on its way to the next."""
        assert self._world is not None, "attach comes first"
        schedule, pid = self._world.traffic.schedule, self._process("messages")
        for message, points in sorted(self._stages.items()):
            points.sort()
            if len(points) < 2:
                continue
            publisher = schedule.publishers.name(message % schedule.count).decode()
            common = {"cat": "message", "id": message, "pid": pid, "tid": 1}
            name = f"{publisher} #{message // schedule.count}"
            self._add({"name": name, "ph": "b", "ts": points[0][0], **common, "args": {}})
            for (begin, reached), (end, reaches) in pairwise(points):
                stage = f"{reached} → {reaches}"
                self._add({"name": stage, "ph": "b", "ts": begin, **common, "args": {}})
                self._add({"name": stage, "ph": "e", "ts": end, **common, "args": {}})
            self._add({"name": name, "ph": "e", "ts": points[-1][0], **common, "args": {}})

    def to_json(self) -> dict[str, Any]:
        """The trace, once the run is over."""
        self._message_events()
        self._stages.clear()
        names: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}
            for name, pid in self._processes.items()
        ]
        names += [
            {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
            for (pid, name), tid in self._threads.items()
        ]
        about = {"window_us": [self.begin_us, self.end_us], "events_left_out": self.left_out, "clock": "simulated"}
        return {"traceEvents": names + self._events, "displayTimeUnit": "ms", "otherData": about}


def parse_window(text: str | None, default: Sequence[float]) -> tuple[int, int]:
    """``BEGIN:END`` in simulated seconds as microseconds. Raises ValueError with what is wrong."""
    begin_s, end_s = default
    if text is not None:
        begin, colon, end = text.partition(":")
        if not colon:
            raise ValueError("write BEGIN:END in simulated seconds, for instance 0.2:0.25")
        try:
            begin_s, end_s = float(begin), float(end)
        except ValueError:
            raise ValueError("BEGIN and END are numbers of simulated seconds, for instance 0.2:0.25") from None
    if not 0 <= begin_s < end_s < float("inf"):
        raise ValueError("END must come after BEGIN, and neither be negative")
    return round(begin_s * 1e6), round(end_s * 1e6)
