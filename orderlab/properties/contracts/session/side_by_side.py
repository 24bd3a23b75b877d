"""What one workload costs a session store, and what it does under each fault: its row in `orderlab compare`.

The workload is that of one client: MESSAGES of PAYLOAD bytes, QoS 1, are saved one at a time, fetched in pages of PAGE,
and acknowledged one at a time; then a queue at LIMIT. Times are estimates of the cost model (``sim/costs/redis.toml``,
``prototype.toml``), so that they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from orderlab.model.contracts.client_steps import Fault
from orderlab.model.contracts.session.traces import Acknowledge, Clear, Fetch, Publication, Retry, Save, Step, Upkeep
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.subject import Subject
from orderlab.properties.side_by_side import (
    CALLS_MAX,
    CONDITIONS,
    KEPT,
    LIMIT,
    MESSAGES,
    PAGE,
    PAYLOAD,
    WAITING,
    Cost,
    bytes_of,
    memory_of,
)
from orderlab.sim.costs.cost_model import estimate_us, load_costs
from orderlab.sim.redis.replies import Reply
from orderlab.sim.servers.session_tables import Incoming, SimulatedTables, disk_bytes
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Call, Failed
from orderlab.sim.stores.bound import BoundStore, kernel_of
from orderlab.sim.stores.tables import TABLES, TablesBackend

CLIENT = b"plain-client"
FOREVER_MS = 604_800_000
CRASH = Fault("crash")
"""Of tables: their server's processes end when a save has been acknowledged."""


class _Metered(BoundStore):
    """Counts the bytes of commands and replies."""

    bytes_sent = 0

    def run(self, call: Call) -> Reply:
        """One call."""
        reply = super().run(call)
        self.bytes_sent += bytes_of(call.argv, reply)
        return reply


def _publication(label: int) -> Publication:
    return Publication(label, (b"m%d" % label).ljust(PAYLOAD, b"."), b"t", 1, None)


def _unjudged(binding: Binding) -> tuple[_Metered, SessionRun]:
    store = _Metered(binding, kernel_of(binding), FOREVER_MS)
    run = SessionRun(store, (CLIENT,))
    run.stop_judging()
    return store, run


def measured(binding: Binding) -> Cost:
    """The workload, on the kernel or on tables."""
    if binding.tables is not None:
        return measured_tables(TABLES[binding.tables])
    limit = binding.fixed.get("limit", min(LIMIT, binding.modulus))
    store, run = _unjudged(binding)
    with store.recording() as saves:
        for label in range(1, MESSAGES + 1):
            run.perform(Save((_publication(label),), limit=limit))
    with store.recording() as others:
        for first in range(1, MESSAGES + 1, PAGE):
            run.perform(Fetch(count=PAGE))
            for label in range(first, first + PAGE):
                run.perform(Acknowledge(label))
    inner = sum(len(record.calls) for record in (*saves, *others))
    saves_us = sum(estimate_us(record.calls) for record in saves)
    spent_us = saves_us + sum(estimate_us(record.calls) for record in others)
    blocking_ms, by = _longest(binding, limit)
    return Cost(
        commands=inner / MESSAGES,
        bytes=store.bytes_sent / MESSAGES,
        latency_ms=saves_us / MESSAGES / 1000,
        per_s=1e6 * MESSAGES / spent_us,
        blocking_ms=blocking_ms,
        blocking_by=by,
        memory_bytes=_memory(binding, limit),
    )


def _filled(run: SessionRun, store: _Metered, count: int, limit: int) -> None:
    size = min(store.largest_batch, 500)
    for first in range(1, count + 1, size):
        run.perform(Save(tuple(map(_publication, range(first, min(first + size, count + 1)))), limit=limit))


def _memory(binding: Binding, limit: int) -> float:
    store, run = _unjudged(binding)
    count = min(WAITING, limit)
    _filled(run, store, count, limit)
    return memory_of(store.backend) / count


def _longest(binding: Binding, limit: int) -> tuple[float, str]:
    """The operation that blocks a node longest, of those on a queue at the limit."""
    store, run = _unjudged(binding)
    _filled(run, store, limit, limit)
    found = []
    named: tuple[tuple[str, Step], ...] = (
        ("save that trims one", Save((_publication(limit + 1),), limit=limit)), ("fetch of everything", Fetch()),
        ("acknowledge", Acknowledge(limit)), ("clear", Clear()),
    )  # fmt: skip
    for name, step in named:
        with store.recording() as records:
            run.perform(step)
        found.append((max((estimate_us(record.calls) / 1000 for record in records), default=0.0), name))
    return max(found)


def faults(binding: Binding, seed: int) -> dict[str, str]:
    """By fault, the laws that a save under it breaks, with its repetition, a fetch and an acknowledgement after it."""
    if binding.tables is not None:
        struck = {kind: _broken(binding, seed, [(Fault(kind), True)]) for kind in TablesBackend.trouble}
        return {**struck, "crashed": _broken(binding, seed, [(CRASH, False)])}
    found = {"lost-reply": _broken(binding, seed, [(None, True)])}
    for kind in ("killed", "crashed", "client-dies"):
        at = range(1, CALLS_MAX) if kind == "client-dies" else range(CALLS_MAX)
        found[kind] = _broken(binding, seed, [(Fault(kind, one), True) for one in at])
    for kind in CONDITIONS:
        found[kind] = _broken(binding, seed, [(Fault(kind), False), (Fault(kind), True)])
    return found


def _broken(binding: Binding, seed: int, tries: Sequence[tuple[Fault | None, bool]]) -> str:
    laws: dict[str, None] = {}
    for fault, is_retried in tries:
        run = Subject(binding, seed).run((CLIENT,))
        has_failed = fault is None or fault.kind == "client-dies"
        for step in _under(fault, is_retried, binding.fixed.get("limit")):
            if isinstance(step, Retry) and not has_failed:
                continue  # the fault did not strike: its client has the reply, and sends nothing again
            report = run.perform(step)
            has_failed = has_failed or isinstance(report.result, Failed)
            laws.update(dict.fromkeys(one.law for one in report.discrepancies))
            if report.diverges:
                break
    return ", ".join(laws) or KEPT


def _under(fault: Fault | None, is_retried: bool, limit: int | None) -> Iterator[Step]:
    each = 2 if limit is None or limit >= 4 else 1
    first, second = (tuple(map(_publication, range(at + 1, at + each + 1))) for at in (0, each))
    yield Save(first, limit=limit or 100)
    yield Save(second, limit=limit or 100, fault=None if fault is CRASH else fault)
    if fault is CRASH:
        yield Upkeep(CRASH.kind)
    if is_retried:
        yield Retry()
    yield Fetch()
    yield Acknowledge(1)
    yield Fetch()


def measured_tables(waits: bool) -> Cost:
    """The workload on the two tables of PostgreSQL, as they are simulated. ``waits``: a commit, for the log."""
    tables = SimulatedTables(LIMIT, waits)
    for number in range(1, MESSAGES + 1):
        tables.save(CLIENT, [Incoming(number)])
    saves_us, saves_ms = tables.work_us, tables.env.now / 1000 / MESSAGES
    statements = 4 * MESSAGES
    wire = load_costs("prototype").postgres
    assert wire is not None
    sent = MESSAGES * (wire.wire_save_bytes + wire.wire_acknowledge_bytes)
    for first in range(1, MESSAGES + 1, PAGE):
        sent += wire.wire_fetch_bytes + wire.wire_row_bytes * len(tables.fetch(CLIENT))
        statements += 1
        for number in range(first, first + PAGE):
            tables.acknowledge(CLIENT, number)
            statements += 1
    spent_us = tables.work_us
    tables.save(CLIENT, [Incoming(number) for number in range(1, WAITING + 1)])
    stored = disk_bytes(tables.fetch(CLIENT))
    tables.clear(CLIENT)
    tables.save(CLIENT, [Incoming(number) for number in range(1, LIMIT + 1)])
    held = {
        "fetch of everything": _work_us(tables, lambda: tables.fetch(CLIENT)),
        "clear": _work_us(tables, lambda: tables.clear(CLIENT)),
    }
    by = max(held, key=lambda what: held[what])
    assert saves_us <= spent_us
    return Cost(
        commands=statements / MESSAGES,
        bytes=sent / MESSAGES,
        latency_ms=saves_ms,
        per_s=1e6 * MESSAGES / spent_us,
        blocking_ms=held[by] / 1000,
        blocking_by=f"{by}, one backend",
        memory_bytes=stored / WAITING,
    )


def _work_us(tables: SimulatedTables, operate: Any) -> float:
    before = tables.work_us
    operate()
    return tables.work_us - before
