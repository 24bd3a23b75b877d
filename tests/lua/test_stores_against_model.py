"""lua/session, lua/pending and lua/inbound against a second algorithm that keeps the same promises with a plain list.

Long random runs at a small modulus, so that wraps, live identifiers in the way, trims, ghosts and repetitions meet;
with the limits of the script (chunk of ``unpack``, sweep) as they are and reduced to almost nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from orderlab.sim.stores.binding import (
    Assigned,
    Cleared,
    Fetched,
    FetchedMessage,
    Message,
    Opened,
    Removed,
    Result,
    Saved,
)

pytestmark = pytest.mark.server


@dataclass
class Kept:
    """A message in the queue."""

    sequence: int
    packet_id: int
    payload: bytes
    deadline_ms: float
    kind: str = "PUBLISH"


@dataclass
class SessionModel:
    """One client's session, or its absence (``epoch`` is None). ``pending``: as far as lua/pending goes; ``fenced``:
    lua/inbound, where whoever opens a queue shuts out those before him."""

    modulus: int
    pending: bool = False
    fenced: bool = False
    now_ms: int = 1_000_000
    epoch: int | None = None
    last: int = 0
    queue: list[Kept] = field(default_factory=list)
    marks: dict[bytes, tuple[int, Saved]] = field(default_factory=dict)

    def live(self) -> list[Kept]:
        self.queue = [kept for kept in self.queue if kept.deadline_ms > self.now_ms]
        return self.queue

    def open(self, epoch: int, clean_start: int) -> Opened:
        if self.epoch is not None and epoch < self.epoch:
            return Opened(refused="STALE")
        if self.epoch is not None and (epoch == self.epoch or not clean_start):
            if self.fenced:
                self.epoch = epoch
                return Opened(True, epoch)
            return Opened(epoch > self.epoch, self.epoch)
        self.epoch, self.last, self.queue, self.marks = epoch, epoch * 2**24 if self.fenced else 0, [], {}
        return Opened(False, epoch)

    def save(
        self, epoch: int, limit: int, default_expiry_ms: int, producer: bytes, batch: int, messages: Sequence[Message]
    ) -> Saved:
        if self.epoch is None or epoch < self.epoch:
            return Saved(refused="CLOSED")
        if producer and producer in self.marks:
            done, reply = self.marks[producer]
            if batch <= done:
                return reply if batch == done else Saved(refused="STALE")
        if not messages:
            return Saved()
        deadlines = [self._deadline(message, default_expiry_ms) for message in messages]
        alive = sum(deadline > self.now_ms for deadline in deadlines)
        staying = self.live()[max(0, len(self.live()) + min(alive, limit) - limit) :]
        taken = {kept.packet_id for kept in staying}
        assigned, new = [], []
        for message, deadline in zip(messages, deadlines, strict=True):
            if deadline <= self.now_ms:
                assigned.append(Assigned(None, None))
                continue
            self.last += 1
            while (self.last - 1) % self.modulus + 1 in taken:
                self.last += 1
            packet_id = (self.last - 1) % self.modulus + 1
            assigned.append(Assigned(packet_id, self.last))
            new.append(Kept(self.last, packet_id, message.payload, deadline))
        self.queue = staying + new[max(0, len(new) - limit) :]
        reply = Saved(tuple(assigned), first=assigned[0].packet_id, last=assigned[-1].packet_id)
        if producer:
            self.marks[producer] = batch, reply
        return reply

    def _deadline(self, message: Message, default_expiry_ms: int) -> float:
        if message.expiry_ms is None:
            return self.now_ms + default_expiry_ms if default_expiry_ms > 0 else float("inf")
        deadline = self.now_ms + message.expiry_ms
        return float("inf") if deadline > 9_999_999_999_998 else deadline // 1

    def fetch(self, count: int, after: int) -> Fetched:
        page = [kept for kept in self.live() if kept.sequence > after][:count]
        return Fetched(
            tuple(
                FetchedMessage(
                    payload=kept.payload if kept.kind == "PUBLISH" else None,
                    packet_id=kept.packet_id,
                    sequence=kept.sequence,
                    kind=kept.kind,
                    remaining_ms=None if kept.deadline_ms == float("inf") else int(kept.deadline_ms - self.now_ms),
                    topic=None if self.pending or kept.kind == "PUBREL" else b"t",
                    qos=None if self.pending or kept.kind == "PUBREL" else 1,
                )
                for kept in page
            )
        )

    def _find(self, epoch: int, packet_id: int, sequence: int) -> Kept | None:
        if self.epoch is None or epoch < self.epoch:
            return None
        return next(
            (
                kept
                for kept in self.live()
                if kept.sequence == sequence and (self.pending or kept.packet_id == packet_id)
            ),
            None,
        )

    def acknowledge(self, epoch: int, packet_id: int, sequence: int) -> Removed:
        kept = self._find(epoch, packet_id, sequence)
        if kept is None:
            return Removed(0)
        self.queue.remove(kept)
        return Removed(1)

    def release(self, epoch: int, packet_id: int, sequence: int) -> Removed:
        kept = self._find(epoch, packet_id, sequence)
        if kept is None:
            return Removed(0)
        kept.kind = "PUBREL"
        return Removed(1)

    def clear(self, epoch: int) -> Cleared:
        if self.epoch is None or epoch < self.epoch:
            return Cleared(0)
        self.epoch, self.last, self.queue, self.marks = None, 0, [], {}
        return Cleared(1)


SMALL = {b"6000, 512": b"4, 2", b"max(100, ": b"max(2, ", b"(count, 1000)": b"(count, 2)", b"size, 1000)": b"size, 2)"}
SMALL |= {b"9999999999999, 6000": b"9999999999999, 2", b"9999999999999, 1000": b"9999999999999, 2"}
"""Limits of the scripts made so small that every loop of theirs takes several rounds."""


def random_step(draw: random.Random, model: SessionModel) -> tuple[str, dict[str, Any]]:
    """An operation that makes sense often enough, and none now and then."""
    epoch = max(0, (model.epoch or 1) + draw.choice([0, 0, 0, 0, 0, -1, 1]))
    known = draw.choice(model.queue) if model.queue else Kept(3, 1, b"", 0)
    answer = {
        "epoch": epoch,
        "packet_id": known.packet_id if draw.random() < 0.9 else draw.randint(1, model.modulus),
        "sequence": known.sequence if draw.random() < 0.9 else max(0, known.sequence - model.modulus),
    }
    kind = draw.choices(
        ("save", "fetch", "acknowledge", "release", "open", "clear", "wait"),
        (10, 3, 6, 0 if model.pending else 2, 0.5, 0.1, 4),
    )[0]
    if kind == "save":
        producer = draw.choice([b"", b"p", b"q"])
        done = model.marks.get(producer, (0, None))[0]
        intervals = draw.choice([[None], [None, 5, 20], [1, 3, 7, 0], [None, -3, 0.5, 2.5, 1e300, 2**53, 9]])
        size = 1 if model.pending else draw.choice([1, 1, 1, 2, 3, 5, 9])
        messages = [Message(b"%d" % draw.randrange(10**6), b"t", 1, draw.choice(intervals)) for _ in range(size)]
        return "save", {
            "epoch": epoch,
            "limit": min(model.modulus, draw.choice([1, 2, 3, 7, 7])),
            "default_expiry_ms": draw.choice([0, 10, 10, 10, 1000]),
            "producer": producer,
            "batch": max(0, done + draw.choice([1, 1, 1, 1, 0, -1])),
            "messages": messages,
        }
    if kind == "fetch":
        after = draw.choice([0, 0, known.sequence, known.sequence - 1])
        return "fetch", {"count": draw.choice([1, 2, 3, 100]), "after": max(0, after)}
    if kind == "open":
        return "open", {"epoch": epoch, "clean_start": draw.randint(0, 1)}
    return (kind, {"epoch": epoch}) if kind == "clear" else (kind, answer if kind != "wait" else {})


def check_session_keys(store: Any, model: SessionModel) -> None:
    """Both keys or none; each index entry has its body and each body its entry; nothing else is there."""
    ids = store.connection.execute(b"ZRANGEBYSCORE", b"{s:c}:i", b"(0", b"+inf")
    fields = store.connection.execute(b"HKEYS", b"{s:c}:b")
    assert sorted(ids) == sorted(name for name in fields if name.isdigit())
    early = store.connection.execute(b"ZRANGEBYSCORE", b"{s:c}:i", b"-inf", b"(0")
    assert {name[1:] for name in early} <= set(ids)
    present = store.connection.execute(b"EXISTS", b"{s:c}:i", b"{s:c}:b")
    assert present == (0 if model.epoch is None else 2)
    assert (b"m" in fields) == (model.epoch is not None)


def check_pending_keys(store: Any, model: SessionModel) -> None:
    """All four keys or none; each deadline has its message."""
    names = [b"persist:{c:c}:" + name for name in (b"pending", b"deadlines", b"seq", b"session")]
    assert store.connection.execute(b"EXISTS", *names) == (0 if model.epoch is None else 4)
    members = store.connection.execute(b"ZRANGE", names[0], b"0", b"-1")
    timed = store.connection.execute(b"ZRANGE", names[1], b"0", b"-1")
    assert set(timed) <= {member.split(b":")[0] for member in members}


STORES = {"lua/session": check_session_keys, "lua/pending": check_pending_keys, "lua/inbound": check_session_keys}


@pytest.mark.parametrize("small", [{}, SMALL], ids=["limits as they are", "small limits"])
@pytest.mark.parametrize("modulus", [1, 2, 3, 7, 65535])
@pytest.mark.parametrize("folder", STORES)
def test_every_reply_is_that_of_the_model(
    open_store: Callable[..., Any], folder: str, modulus: int, small: dict[bytes, bytes]
) -> None:
    draw = random.Random(f"{modulus} {small}")
    model = SessionModel(modulus, pending=folder == "lua/pending", fenced=folder == "lua/inbound")
    store = open_store(folder, now_ms=model.now_ms, modulus=modulus).replacing(small)
    passed_over = 0
    for step in range(800):
        operation, fields = random_step(draw, model)
        if operation == "wait":
            model.now_ms += draw.choice([0, 1, 2, 5, 30])
            store.set_clock(model.now_ms)
            continue
        told: Result = store.perform(operation, **fields)
        before = model.last
        expected = getattr(model, operation)(**fields)
        assert told == expected, (step, operation, fields)
        assert store.perform("fetch", count=100) == model.fetch(100, 0), (step, operation, fields)
        STORES[folder](store, model)
        if operation == "save" and isinstance(told, Saved):
            passed_over += model.last - before > sum(one.packet_id is not None for one in told.assigned)
    assert passed_over > 5 or modulus != 3  # live identifiers were in the way often enough
