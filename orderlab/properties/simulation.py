"""A simulated run judged, its witnesses told where the message was, and made shorter.

A run follows from its system, settings and seed, so what a history says is missing is looked for in the same run, watched."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from orderlab.model.checkers.findings import Finding
from orderlab.model.verdict import Verdict
from orderlab.sim.systems.base import DeviceSystem
from orderlab.sim.systems.catalogue import entry
from orderlab.sim.systems.settings import Settings
from orderlab.sim.systems.whereabouts import Wanted, Watch


def located(verdicts: Iterable[Verdict], system: str, settings: Settings, seed: int) -> list[Verdict]:
    """The verdicts of a run, their witnesses completed with what became of the message; the run is made once more if one names a message."""
    verdicts = list(verdicts)
    wanted: dict[Wanted, int] = {}
    asked: dict[int, list[int]] = {}
    for index, verdict in enumerate(verdicts):
        finding = verdict.witness
        if not isinstance(finding, Finding) or finding.publisher is None or finding.subscriber is None:
            continue
        sequences = [number for number in (finding.sequence, finding.other_sequence) if number is not None]
        asked[index] = [wanted.setdefault(Wanted(finding.publisher, number, finding.subscriber), len(wanted)) for number in sequences]
    watch = _watched(system, settings, seed, Watch(list(wanted))) if wanted else None
    if watch is None:
        return verdicts
    for index, numbers in asked.items():
        finding = verdicts[index].witness
        if not numbers:
            continue
        broken_us = next((event["time_us"] for event in finding.events if event["event_id"] == finding.event_id), math.inf)
        told = watch.told(numbers[0], finding.event_id is not None, broken_us)
        if told is not None and told["fault"]:
            rows = [event["event_id"] for event in finding.events if event["kind"] == "fault" and event["time_us"] == told["fault"]["at_us"]]
            told["fault"]["event_id"] = rows[0] if rows else None
        if told is not None and len(numbers) > 1:
            told["turned_at"] = watch.turned(*sorted(numbers, key=lambda number: watch.wanted[number].sequence))
            told["other_way"] = (watch.told(numbers[1], True) or {}).get("way")
        verdicts[index] = replace(verdicts[index], witness=replace(finding, where=told))
    return verdicts


def _watched(system: str, settings: Settings, seed: int, watch: Watch) -> Watch | None:
    """The run, watched; None for a system without brokers."""
    assembled = entry(system).assemble(settings, seed, [])
    if not isinstance(assembled, DeviceSystem):
        return None
    watch.attach(assembled.world, assembled.names())
    assembled.run()
    return watch
