"""What one workload costs a feed or a job queue, and what it does under each fault: its row in `orderlab compare`.

Feeds: MESSAGES of PAYLOAD bytes are posted one at a time, listed in pages of PAGE, claimed in pages of PAGE, and
deleted one at a time. Job queues: as many jobs are added, taken and completed one at a time. Then either holds LIMIT.
What a store has no operation for is left out. Times are estimates of the cost model, as those of sessions are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Protocol

from orderlab.model.contracts.base import Call, Contract, Failed, Reply
from orderlab.model.contracts.client_steps import REPLY_LOST, Begin, ClientStep, Die, Fault, Resume, Wait
from orderlab.model.contracts.feed.contract import FeedStore
from orderlab.model.contracts.feed.promises import START, payload_of
from orderlab.model.contracts.job_queue.contract import JobQueue
from orderlab.model.contracts.judge import Judge, Violation
from orderlab.properties.engine.run import ClientState, ContractRun, Report
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
from orderlab.sim.costs.cost_model import estimate_us
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.blocking import Waiting
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.bound import kernel_of
from orderlab.sim.stores.records import record_of

CLIENT_DIES = "client-dies"
FOREVER_MS, LEASE_MS = 604_800_000, 600_000
POSTED_AT_ONCE = 500
Send = Callable[..., Reply]
"""An operation's name and fields to its reply; None where its client hears of none."""
Blocked = Iterator[tuple[str, float]]
"""What was done, and the microseconds of the longest of its calls."""


class _NoJudge(Judge):
    """Asks nothing: states of thousands of messages are no small scope, and here is counted."""

    def begin(self, client: int, call: Call) -> None:
        """Record nothing: calls are counted, not judged."""

    def finish(self, client: int, reply: Reply) -> Violation | None:
        """Record nothing, and find no violation."""
        return None

    def overlooked(self, calls: Mapping[int, Call]) -> list[int]:
        """Nothing: all calls are counted alike."""
        return []


class Metered(ContractRun):
    """One client, whose calls are counted and not judged."""

    def __init__(self, binding: Binding, contract: Contract, now_ms: int = FIRST_MS) -> None:
        self.backend: KernelBackend
        super().__init__(binding, contract, KernelBackend(now_ms, binding.server), 1)
        self.judge = _NoJudge(contract, self.backend.now_ms)
        self.bytes = self.commands = 0
        self.work_us = self.longest_us = 0.0
        self.failed: dict[str, None] = {}
        """Operations that did, each once."""

    def send(self, name: str, **fields: Any) -> Reply:
        """Carry out an operation. One that fails costs what it did, replies with nothing, and is noted."""
        self.longest_us = 0.0
        report = self.carry_out(Begin(0, Call.of(name, **fields)), perform=self._counted)
        if report.waits:
            self.perform(Die(0))
            return None
        # It remembers nothing: a list of all that it has seen would be copied with every call.
        self.clients[0] = ClientState()
        if isinstance(report.reply, Failed):
            self.failed[name] = None
            return None
        return report.reply

    def _counted(self, step: ClientStep) -> Report:
        report = self.perform(step)
        calls = record_of("", b"", report.effects).calls
        us = estimate_us(calls) if calls else 0.0
        self.commands += len(calls)
        self.work_us += us
        self.longest_us = max(self.longest_us, us)
        return report

    def _send(self, number: int, call: Any) -> Any:
        before = self.bytes
        reply = super()._send(number, call)
        # A command that may block goes another way than all others.
        if self.bytes == before and not isinstance(reply, Waiting):
            self.bytes += bytes_of(call.argv, reply)
        return reply

    def _execute(self, number: int, *argv: bytes) -> Any:
        reply = super()._execute(number, *argv)
        self.bytes += bytes_of(argv, reply)
        return reply

    def blocked(self, name: str, told: str = "", **fields: Any) -> Blocked:
        """How long an operation blocks; nothing where the store has it not."""
        if name in self.binding.operations:
            self.send(name, **fields)
            yield told or name, self.longest_us


class Workload(Protocol):
    """What clients of one contract do."""

    def fill(self, send: Send, first: int, count: int) -> None:
        """``count`` messages or jobs come, from number ``first`` on."""
        ...

    def work(self, send: Send, count: int) -> None:
        """They are read and done with."""
        ...

    def at_limit(self, run: Metered, limit: int) -> Blocked:
        """What blocks how long, of operations on so many."""
        ...

    def story(self, send: Send, wait: Callable[[int], None]) -> None:
        """Few of them come and go, and what was claimed or leased comes back."""
        ...

    def look(self, send: Send) -> None:
        """What others do between an operation whose client hears of no reply, and its repetition."""
        ...


def _payload(number: int) -> str:
    return f"m{number}".ljust(PAYLOAD, ".")


@dataclass(frozen=True)
class _FeedWork:
    contract: FeedStore

    def _has(self, name: str) -> bool:
        return name in self.contract.bound

    def _most(self, count: int) -> int:
        """So many, or what the store gives at most."""
        return min(count, self.contract.promises.count_max or count)

    def fill(self, send: Send, first: int, count: int) -> None:
        """By one, or by many at once."""
        for begin in range(first, first + count, POSTED_AT_ONCE):
            numbers = range(begin, min(begin + POSTED_AT_ONCE, first + count))
            send("post", posts=tuple((f"m{number}", _payload(number)) for number in numbers), ttl_ms=FOREVER_MS)

    def _list(self, send: Send) -> None:
        """Page by page, up to the end."""
        marker: Reply = START
        for _ in range(MESSAGES if self._has("list") else 0):
            page = self.contract.page(send("list", marker=marker, count=self._most(PAGE)))
            if page is None or not page.names or page.is_end or page.marker == marker:
                return
            marker = page.marker

    def _claim(self, send: Send, count: int, number: int) -> tuple[Reply, list[Reply]]:
        """(token, names) of what was given."""
        reply = (
            send("claim", token=f"t{number}", count=self._most(count), ttl_ms=LEASE_MS) if self._has("claim") else None
        )
        if not isinstance(reply, tuple) or not reply:
            return None, []
        return reply[0], [row[0] for row in reply[1:] if isinstance(row, tuple)]

    def work(self, send: Send, count: int) -> None:
        """Listed and claimed in pages, deleted one at a time."""
        self._list(send)
        for number in range(count // PAGE):
            token, names = self._claim(send, PAGE, number)
            for name in names if self._has("delete") else ():
                send("delete", message=name, token=token)

    def at_limit(self, run: Metered, limit: int) -> Blocked:
        """Everything at once, as far as the store gives it."""
        yield from run.blocked("post", posts=(("more", _payload(0)),), ttl_ms=FOREVER_MS)
        yield from run.blocked("list", "list of everything", marker=START, count=self._most(limit))
        yield from run.blocked("get", message="m1")
        token, names = self._claim(run.send, limit, 0)
        yield "claim of everything", run.longest_us
        yield from run.blocked("renew", "renew of everything", token=token, ttl_ms=LEASE_MS)
        yield from run.blocked("release", "release of everything", token=token)
        self._claim(run.send, limit, 1)
        run.perform(Wait(LEASE_MS + 1))
        token, names = self._claim(run.send, limit, 2)
        yield "claim of everything that has lapsed", run.longest_us
        if names:
            yield from run.blocked("delete", message=names[0], token=token)

    def story(self, send: Send, wait: Callable[[int], None]) -> None:
        """Two posts, a list, a claim of each, and again once it has lapsed."""
        for name in ("m1", "m2"):
            send("post", posts=((name, payload_of(name)),), ttl_ms=FOREVER_MS)
        for number in range(4):
            self._list(send)
            token, names = self._claim(send, 1, number)
            if names and self._has("delete"):
                send("delete", message=names[0], token=token)
            wait(LEASE_MS + 1 if number == 1 else 0)

    def look(self, send: Send) -> None:
        """A reader lists."""
        self._list(send)


@dataclass(frozen=True)
class _JobWork:
    contract: JobQueue

    def fill(self, send: Send, first: int, count: int) -> None:
        """One at a time."""
        for number in range(first, first + count):
            send(
                "add",
                job=f"m{number}",
                payload=_payload(number),
                delay_ms=0,
                priority=self.contract.promises.priorities[0],
                key="",
            )

    def _take(self, send: Send, number: int) -> tuple[Reply, Reply] | None:
        """(job, token) of what was handed out."""
        given, names = f"t{number}", self.contract.promises.tells
        reply = send("take", token=given, lease_ms=LEASE_MS)
        values = reply if isinstance(reply, tuple) else (reply,)
        if reply is None or len(values) != len(names):
            return None
        told = dict(zip(names, values, strict=True))
        return told.get("job"), told.get("token", given)

    def work(self, send: Send, count: int) -> None:
        """Taken and completed one at a time."""
        for number in range(count):
            taken = self._take(send, number)
            if taken is not None:
                send("complete", job=taken[0], token=taken[1])

    def at_limit(self, run: Metered, limit: int) -> Blocked:
        """One of each, and what comes when the leases of all have lapsed."""
        yield from run.blocked(
            "add", job="more", payload=_payload(0), delay_ms=0, priority=self.contract.promises.priorities[0], key=""
        )
        taken = self._take(run.send, 0)
        yield "take", run.longest_us
        if taken is not None:
            yield from run.blocked("complete", job=taken[0], token=taken[1])
        for name in ("pause", "resume", "counts"):
            yield from run.blocked(name)
        for number in range(limit):
            self._take(run.send, number)
        run.perform(Wait(LEASE_MS + 1))
        for name in ("recover", "promote"):
            yield from run.blocked(name, f"{name} after all leases have lapsed")
        self._take(run.send, limit)
        yield "take after all leases have lapsed", run.longest_us

    def story(self, send: Send, wait: Callable[[int], None]) -> None:
        """Two are added; all are taken and completed, and again once their leases have lapsed."""
        for name in ("m1", "m2"):
            send("add", job=name, payload=name, delay_ms=0, priority=self.contract.promises.priorities[0], key="")
        for number in range(4):
            self.work(send, 1)
            wait(LEASE_MS + 1 if number == 1 else 0)
            if number == 1 and "recover" in self.contract.bound:
                send("recover")

    def look(self, send: Send) -> None:
        """Have another client count the jobs."""
        if "counts" in self.contract.bound:
            send("counts")


@singledispatch
def workload_of(contract: Contract, binding: Binding) -> Workload | None:
    """What clients of the contract do; None where nothing is known of them, or the store lacks what they begin with."""
    return None


@workload_of.register
def _feed_work(contract: FeedStore, binding: Binding) -> Workload | None:
    return _FeedWork(contract) if "post" in binding.operations else None


@workload_of.register
def _job_work(contract: JobQueue, binding: Binding) -> Workload | None:
    return _JobWork(contract) if {"add", "take", "complete"} <= binding.operations.keys() else None


def measured(binding: Binding, contract: Contract, workload: Workload, limit: int = LIMIT) -> Cost:
    """The workload on the kernel."""
    run, full, few = (Metered(binding, contract) for _ in range(3))
    for number in range(1, MESSAGES + 1):
        workload.fill(run.send, number, 1)
    saves_us = run.work_us
    workload.work(run.send, MESSAGES)
    workload.fill(few.send, 1, WAITING)
    workload.fill(full.send, 1, limit)
    by, blocking_us = max(workload.at_limit(full, limit), key=lambda one: one[1])
    failed = run.failed | few.failed | full.failed
    if failed:
        by = f"{by}; {', '.join(failed)} failed"
    return Cost(
        commands=run.commands / MESSAGES,
        bytes=run.bytes / MESSAGES,
        latency_ms=saves_us / MESSAGES / 1000,
        per_s=1e6 * MESSAGES / run.work_us,
        blocking_ms=blocking_us / 1000,
        blocking_by=by,
        memory_bytes=memory_of(few.backend) / WAITING,
    )


class _Broken(Exception):
    """A law has fallen: what comes after is explained by no state."""


@dataclass
class _Struck:
    """One client, judged, whose operation number ``at`` of a story meets a fault and is then made again."""

    run: ContractRun
    workload: Workload
    fault: Fault
    at: int
    made: int = 0
    laws: tuple[str, ...] = ()

    def send(self, name: str, **fields: Any) -> Reply:
        """Carry out an operation; the reply of its repetition where it was struck."""
        call = Call.of(name, **fields)
        is_struck, self.made = self.made == self.at, self.made + 1
        if is_struck:
            report = self._carried_out(call, self.fault)
            if not report.stopped and not isinstance(report.reply, Failed):
                return report.reply  # the fault did not strike
            self.workload.look(lambda name, **fields: self._carried_out(Call.of(name, **fields), None).reply)
        return self._carried_out(call, None).reply

    def _carried_out(self, call: Call, fault: Fault | None) -> Report:
        dies = fault.at if fault is not None and fault.kind == CLIENT_DIES else 0
        trouble = None if dies else fault
        report = self._seen(self.run.perform(Begin(0, call, trouble)))
        made = 1
        while not report.is_over:
            if self.run.clients[0].waits is not None or made == dies:
                return self._seen(self.run.perform(Die(0)))
            report = self._seen(self.run.perform(Resume(0)))
            made += 1
        return report

    def _seen(self, report: Report) -> Report:
        if report.violation is not None:
            self.laws = report.violation.laws
            raise _Broken
        return report

    def wait(self, ms: int) -> None:
        """Time passes."""
        if ms:
            self.run.perform(Wait(ms))


FAULTS: Mapping[str, Sequence[Fault]] = {
    "lost-reply": [Fault(REPLY_LOST)],
    **{
        kind: [Fault(kind, at) for at in range(kind == CLIENT_DIES, CALLS_MAX)]
        for kind in ("killed", "crashed", CLIENT_DIES)
    },
    **{kind: [Fault(kind)] for kind in CONDITIONS},
}


def faults(binding: Binding, contract: Contract, workload: Workload, kinds: Collection[str] = FAULTS) -> dict[str, str]:
    """By fault, the laws that fall when it strikes one operation of the story, which is then made again."""
    return {kind: _broken(binding, contract, workload, FAULTS[kind]) for kind in kinds}


def _broken(binding: Binding, contract: Contract, workload: Workload, tried: Sequence[Fault]) -> str:
    laws: dict[str, None] = {}
    for fault in tried:
        at = operations = 0
        while at <= operations:
            struck = _Struck(ContractRun(binding, contract, kernel_of(binding), 1), workload, fault, at)
            with suppress(_Broken):
                workload.story(struck.send, struck.wait)
            laws.update(dict.fromkeys(struck.laws))
            at, operations = at + 1, struck.made - 1
    return ", ".join(laws) or KEPT
