"""The two-table store on PostgreSQL held against the contract of sessions: the same judge, the same laws, as for stores
of scripts.

A binding's replies come from a Redis backend, whose states are explored; a table's do not. So these tables, simulated
or real (``orderlab.sim.servers.session_tables``), are driven by random runs of steps, and every step is judged like one
of a store of scripts: by its reply and by what a fetch lists after it. A small number of identifiers brings the wrap
near. Each run has some kinds of steps and faults and lacks others, so that a law which falls soon in one does not hide
the rest. A run that breaks a law is made short before it is told.

``disagreement`` carries out the same run on two tables and says where they part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from orderlab.model.contracts.contract import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.refinement import (
    Account,
    Judgement,
    ObservedMessage,
    Reply,
    judge_acknowledge,
    judge_clear,
    judge_fetch,
    judge_quiet,
    judge_release,
    judge_save,
    judge_time,
)
from orderlab.model.contracts.session.refinement.steps import ObservedAnswer, ObservedSave
from orderlab.model.contracts.session.spec import Message, lifetime
from orderlab.model.verdict import Outcome, Verdict
from orderlab.sim.mqtt.sessions import NUMBER_BYTES
from orderlab.sim.servers.postgres import DEFAULT_EXPIRY_S, MessageRow, StatementError
from orderlab.sim.servers.session_tables import Fault, Incoming, SessionTables

LAWS = (
    "store-order",
    "no-loss",
    "packet-id",
    "legal-trim",
    "expiry",
    "no-residue",
    "all-or-nothing",
    "counter",
    "retransmission",
    "no-phantom",
    "drain",
)
"""Those that speak of tables: ``one-slot`` and ``bounded`` are about scripts on a node."""
CLIENTS = (b"s1", b"s2")
MODULUS = 7
LIMIT = 4
INTERVALS_S = (None, None, 0, 1, 5, 4_294_967_295)
DRAINS = 3
"""So many turns of fetch and acknowledge empty a queue, or it does not drain."""
NOT_COVERED = (
    "no two transactions of one client overlap but where a fault says so",
    "runs are drawn at random; two transactions that overlap are tried beside, on a real server (notes/store.md)",
    "the end of the machine: fsync is not put to the test, only the end of the server's processes",
)

Do = Literal[
    "save", "retry", "fetch", "acknowledge", "release", "clear", "wait", "clean-up", "settle", "crash", "drain"
]


class Step(NamedTuple):
    """One step of a run; ``label`` is the message that an answer is for, as last fetched."""

    do: Do
    client: int = 0
    messages: tuple[Incoming, ...] = ()
    label: int = 0
    ms: int = 0
    fault: Fault | None = None

    def __str__(self) -> str:
        """As a witness tells it."""
        told = (
            f"client {self.client + 1}: {self.do}"
            if self.do not in ("wait", "clean-up", "settle", "crash")
            else self.do
        )
        if self.do == "save":
            told += " " + ", ".join(_told(one) for one in self.messages)
        elif self.do in ("acknowledge", "release"):
            told += f" m{self.label}"
        elif self.do == "wait":
            told += f" {self.ms} ms"
        return told + (f" [{self.fault}]" if self.fault else "")


def _told(one: Incoming) -> str:
    interval = "" if one.interval_s is None else f" (expires in {one.interval_s} s)"
    return f"m{one.number}{'' if one.qos == 1 else f' QoS {one.qos}'}{interval}"


KINDS: tuple[Do, ...] = ("retry", "fetch", "acknowledge", "release", "clear", "wait", "clean-up", "settle", "crash")
FAULTS: tuple[Fault, ...] = ("serialization", "deadlock", "lost-request", "lost-reply")


def draw_run(draw: random.Random, length: int) -> tuple[Step, ...]:
    """A run of ``length`` steps; in some, the identifiers come round in its course; at its end a drain of every
    queue."""
    kinds = [kind for kind in KINDS if draw.random() < 0.6]
    faults = [kind for kind in FAULTS if draw.random() < 0.3]
    intervals = INTERVALS_S if draw.random() < 0.5 else (None,)
    clients = draw.choice((1, 2))
    comes_round = draw.random() < 0.3
    saved = 0
    steps: list[Step] = []
    for at in range(length):
        if comes_round and at == length // 3:
            for _ in range(MODULUS - 1):
                saved += 1
                steps += [Step("save", 0, (Incoming(saved),)), Step("fetch", 0), Step("acknowledge", 0, label=saved)]
        do = draw.choice(("save", "save", *kinds))
        client = draw.randrange(clients)
        fault = draw.choice(faults) if faults and draw.random() < 0.3 else None
        label = draw.randint(max(1, saved - 9), max(1, saved))
        match do:
            case "save":
                size = draw.choice((1, 1, 2, 3))
                batch = [
                    Incoming(saved + nth, b"t", draw.choice((1, 1, 2)), draw.choice(intervals))
                    for nth in range(1, size + 1)
                ]
                saved += size
                steps.append(Step("save", client, tuple(batch), fault=fault))
            case "acknowledge" | "release":
                steps.append(Step(do, client, label=label, fault=fault))
            case "clear":
                steps.append(Step(do, client, fault=fault))
            case "wait":
                steps.append(Step(do, ms=draw.choice((1, 999, 1000, 5000))))
            case _:
                steps.append(Step(do, client))
    return (*steps, *(Step("drain", client) for client in range(clients)))


@dataclass
class Run:
    """What a caller of the tables knows, and the judge's accounts."""

    tables: SessionTables
    modulus: int = MODULUS
    limit: int = LIMIT
    accounts: list[Account] = field(default_factory=lambda: [Account()] * len(CLIENTS))
    found: list[Discrepancy] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)
    """What each operation replied, and what each fetch returned."""
    _sent: dict[tuple[int, int], int] = field(default_factory=dict)
    """(client, message) -> packet identifier under which it was last fetched."""
    _serials: dict[tuple[int, int], int] = field(default_factory=dict)
    """(client, serial number) -> message, for a PUBREL carries no payload."""
    _last: dict[int, tuple[Step, bool]] = field(default_factory=dict)
    """The last save of a client, and whether it was done."""
    _is_judged: bool = True

    @property
    def store(self) -> Capabilities:
        """What the tables promise: an acknowledgement names a packet identifier alone."""
        return Capabilities(
            self.modulus, has_tokens=False, has_pages=False, has_counts=False, tells_each=True, tells_ids=True
        )

    def carry_out(self, steps: Iterable[Step], is_judged: bool = True) -> Run:
        """Take the steps one after the other; judging ends where nothing that follows can be judged."""
        self._is_judged = is_judged
        for step in steps:
            self.step(step)
        return self

    def step(self, step: Step) -> None:
        """Take one step."""
        tables, client, name = self.tables, step.client, CLIENTS[step.client]
        match step.do:
            case "save":
                self._save(step, False)
            case "retry" if client in self._last:
                last, was_done = self._last[client]
                self._save(last._replace(fault=None), was_done)
            case "fetch":
                self._fetch(client)
            case "acknowledge" | "release":
                self._answer(step)
            case "clear":
                reply = self._told(tables.clear(name, step.fault))
                self._judge(client, lambda account, seen: judge_clear(account, 1, reply, seen, step.fault is not None))
                self._last.pop(client, None)
                self._judge_residue(name, reply)
            case "wait":
                tables.now_ms += step.ms
                for one in range(len(CLIENTS)):
                    self._judge(one, lambda account, seen: judge_time(account, tables.now_ms, seen, self.store))
            case "clean-up":
                self.replies.append(tables.clean_up())
                self._judge_all_quiet()
            case "settle":
                tables.settle()
            case "crash":
                tables.crash()
                self._judge_all_quiet()
            case "drain":
                self._drain(client)

    def _save(self, step: Step, was_done: bool) -> None:
        client = step.client
        said = self.tables.save(CLIENTS[client], step.messages, step.fault)
        reply = self._told(said)
        if not isinstance(said, StatementError):
            for one, (_, serial) in zip(step.messages, said, strict=True):
                self._serials[client, serial] = one.number
            assigned = tuple((one.number, *given) for one, given in zip(step.messages, said, strict=True))
            reply = reply._replace(assigned=assigned, told=tuple(said))
        messages = tuple(_message(one) for one in step.messages)
        observed = ObservedSave(messages, self.limit, is_repeated=was_done)
        is_faulted = step.fault is not None

        def judge(account: Account, seen: Sequence[ObservedMessage]) -> Judgement:
            after = [*(entry.label for entry in account.queue), *(one.label for one in messages)]
            is_whole = (
                is_faulted and [one.label for one in seen] == after
            )  # beyond the limit, too, which no fault has done
            return judge_save(account, observed, Reply() if is_whole else reply, seen, self.store, is_faulted)

        self._judge(client, judge)
        held = {entry.label for entry in self.accounts[client].queue}
        self._last[client] = (
            step,
            was_done or reply.status == "done" or any(one.number in held for one in step.messages),
        )

    def _fetch(self, client: int) -> list[ObservedMessage]:
        rows = self.tables.fetch(CLIENTS[client])
        self.replies.append(rows)
        seen = [self._observed(client, row) for row in rows]
        for one in seen:
            if one.label is not None and one.packet_id is not None:
                self._sent[client, one.label] = one.packet_id
        self._judge(client, lambda account, listing: judge_fetch(account, None, (), Reply(), seen, listing, self.store))
        return seen

    def _answer(self, step: Step) -> None:
        client = step.client
        packet_id = self._sent.get((client, step.label))
        if packet_id is None:
            return
        name, faulted = CLIENTS[client], step.fault is not None
        answer = ObservedAnswer(step.label, packet_id)
        if step.do == "release":
            reply = self._told(self.tables.release(name, packet_id, step.fault))
            self._judge(client, lambda account, seen: judge_release(account, answer, reply, seen, self.store, faulted))
        else:
            reply = self._told(self.tables.acknowledge(name, packet_id, step.fault))
            self._judge(
                client, lambda account, seen: judge_acknowledge(account, answer, reply, seen, self.store, faulted)
            )

    def _drain(self, client: int) -> None:
        for _ in range(DRAINS):
            for one in self._fetch(client):
                if one.label is not None:
                    self._answer(Step("release", client, label=one.label))
                    self._answer(Step("acknowledge", client, label=one.label))
        left = self.tables.fetch(CLIENTS[client])
        if left and self._is_judged:
            self.found.append(
                Discrepancy("drain", f"{len(left)} messages wait after {DRAINS} turns of fetch and acknowledge")
            )

    def _told(self, said: Any) -> Reply:
        self.replies.append(said)
        if isinstance(said, StatementError):
            return Reply("error", said.message)
        return Reply(removed=said if isinstance(said, int) else None)

    def _observed(self, client: int, row: MessageRow) -> ObservedMessage:
        number = row.payload[:NUMBER_BYTES]
        label = int(number) if number else self._serials.get((client, row.serial_number))
        if label is not None:
            self._serials[client, row.serial_number] = label
        left = (
            None if row.msg_expiry_interval is None else row.time + 1000 * row.msg_expiry_interval - self.tables.now_ms
        )
        kind: Literal["PUBLISH", "PUBREL"] = "PUBREL" if row.packet_type == "PUBREL" else "PUBLISH"
        return ObservedMessage(label, row.packet_id, kind, left, token=row.serial_number)

    def _judge(self, client: int, judge: Callable[[Account, Sequence[ObservedMessage]], Judgement]) -> None:
        if not self._is_judged:
            return
        listing = [self._observed(client, row) for row in self.tables.fetch(CLIENTS[client])]
        judged = judge(self.accounts[client], listing)
        self.accounts[client] = judged.account
        self.found += judged.discrepancies
        self._is_judged = not judged.diverges

    def _judge_all_quiet(self) -> None:
        for client in range(len(CLIENTS)):
            self._judge(client, judge_quiet)

    def _judge_residue(self, name: bytes, reply: Reply) -> None:
        if not self._is_judged or reply.status != "done":
            return
        sessions, messages = self.tables.contents()
        left = sum(one.client_id == name for one in sessions) + sum(one.client_id == name for one in messages)
        if left:
            self.found.append(Discrepancy("no-residue", f"{left} rows are left of a session that was cleared"))


def _message(one: Incoming) -> Message:
    interval_ms = None if one.interval_s is None else 1000 * one.interval_s
    return Message(one.number, lifetime(interval_ms, DEFAULT_EXPIRY_S * 1000), one.qos, one.interval_s is not None)


@dataclass(frozen=True)
class Witness:
    """The shortest run known that breaks a law."""

    text: str
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """As a verdict carries it."""
        return {"text": self.text, "steps": [str(step) for step in self.steps]}


MakeTables = Callable[[], SessionTables]


def validate_tables(make: MakeTables, runs: int, seed: int = 0, length: int = 24) -> list[Verdict]:
    """Every law over so many runs on tables with LIMIT and MODULUS, each on empty ones."""
    first: dict[str, tuple[Step, ...]] = {}
    steps_taken = 0
    for number in range(runs):
        run = draw_run(random.Random(f"{seed} {number}"), length)
        steps_taken += len(run)
        for one in Run(make()).carry_out(run).found:
            first.setdefault(one.law, run)
    work = {"runs": runs, "steps": steps_taken}
    verdicts = []
    for law in LAWS:
        if law in first:
            verdicts.append(Verdict(law, Outcome.VIOLATED, shortened(make, law, first[law]), work, NOT_COVERED))
        else:
            verdicts.append(Verdict(law, Outcome.HOLDS, None, work, NOT_COVERED))
    return verdicts


def shortened(make: MakeTables, law: str, steps: tuple[Step, ...]) -> Witness:
    """The run without every step, message and fault that the violation does not need."""
    text = _breaks(make, law, steps)
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for shorter in _shorter(steps):
            told = _breaks(make, law, shorter)
            if told is not None:
                steps, text, is_shorter = shorter, told, True
                break
    assert text is not None
    return Witness(text, steps)


def _breaks(make: MakeTables, law: str, steps: tuple[Step, ...]) -> str | None:
    return next((one.text for one in Run(make()).carry_out(steps).found if one.law == law), None)


def _shorter(steps: tuple[Step, ...]) -> Iterable[tuple[Step, ...]]:
    for at in reversed(range(len(steps))):
        yield steps[:at] + steps[at + 1 :]
    for at, step in enumerate(steps):
        plainer = [step._replace(fault=None)] if step.fault else []
        if len(step.messages) > 1:
            plainer += [
                step._replace(messages=step.messages[:one] + step.messages[one + 1 :])
                for one in range(len(step.messages))
            ]
        for other in plainer:
            yield (*steps[:at], other, *steps[at + 1 :])


def disagreement(one: SessionTables, other: SessionTables, steps: Sequence[Step]) -> str | None:
    """Where two tables part on the same run: in a reply, or in their rows after a step; None where they agree
    throughout."""
    runs = Run(one).carry_out((), False), Run(other).carry_out((), False)
    for at, step in enumerate(steps):
        for run in runs:
            run.replies.clear()
            run.step(step)
        if runs[0].replies != runs[1].replies:
            return f"step {at + 1}, {step}: replies {runs[0].replies} and {runs[1].replies}"
        if one.contents() != other.contents():
            return f"step {at + 1}, {step}: rows {one.contents()} and {other.contents()}"
    return None
