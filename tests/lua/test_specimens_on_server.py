"""Each specimen's scenario on a real server: the flaw shows, and at the nearest correct neighbour it does not.

The scenarios are told step by step here, without the machinery that finds them by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orderlab.sim.redis.hash_slots import hash_slots
from orderlab.sim.stores.binding import Failed, Fetched, FetchedMessage, Message, Saved, ScriptCall, load_binding

pytestmark = pytest.mark.server

SPECIMENS = Path(__file__).parents[2] / "lua" / "specimens"
NOW_MS = 1_000_000
DEFAULT_MS = 60_000


class Play:
    """One client of one store, at a small modulus and on a clock that the scenario moves."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.now_ms = NOW_MS
        self.batch = 0
        self.epoch = 1
        if "open" in store.binding.operations:
            store.perform("open", epoch=1)

    def save(self, *payloads: bytes, limit: int = 3, epoch: int | None = None, expiry_ms: Any = None) -> Any:
        """One save for stores that take batches, one for each message for those that do not."""
        if self.store.binding.operation("save").batch_max == 1 and len(payloads) > 1:
            return [self.save(one, limit=limit, epoch=epoch, expiry_ms=expiry_ms) for one in payloads][-1]
        self.batch += 1
        return self.store.perform("save", **self.save_fields(payloads, limit, epoch, expiry_ms))

    def save_fields(
        self, payloads: Sequence[bytes], limit: int = 3, epoch: int | None = None, expiry_ms: Any = None
    ) -> dict[str, Any]:
        return {
            "epoch": self.epoch if epoch is None else epoch,
            "limit": limit,
            "default_expiry_ms": DEFAULT_MS,
            "producer": b"p",
            "batch": self.batch,
            "messages": [Message(payload, b"t", 2, expiry_ms) for payload in payloads],
        }

    def waiting(self, count: int = 100) -> Sequence[FetchedMessage]:
        fetched = self.store.perform("fetch", count=count, default_expiry_ms=DEFAULT_MS)
        assert isinstance(fetched, Fetched)
        return fetched.messages

    def payloads(self, count: int = 100) -> list[bytes | None]:
        return [message.payload for message in self.waiting(count)]

    def answer(self, operation: str, message: FetchedMessage) -> Any:
        return self.store.perform(
            operation, epoch=self.epoch, packet_id=message.packet_id, sequence=message.sequence or 0
        )

    def save_and_acknowledge(self, count: int) -> None:
        """``count`` identifiers go by."""
        for index in range(count):
            payload = b"passing %d" % index
            self.save(payload)
            self.answer("acknowledge", next(one for one in self.waiting() if one.payload == payload))

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.store.set_clock(self.now_ms)

    def server_time_passes(self, *keys: bytes) -> None:
        """Keys with a deadline of the server's own reach it, in the order of their deadlines: they are gone."""
        for key in keys:
            if self.store.connection.execute(b"PTTL", key) > 0:
                self.store.connection.execute(b"DEL", key)


def bad_interval(play: Play) -> bool:
    """S1: the second of three messages has an interval that Redis refuses."""
    play.batch += 1
    fields = play.save_fields([b"a", b"b", b"c"])
    fields["messages"] = [Message(payload, b"t", 1, 0 if payload == b"b" else None) for payload in (b"a", b"b", b"c")]
    play.store.perform("save", **fields)
    play.save(b"q")
    return play.payloads() != [b"a", b"c", b"q"]


def ghosts(play: Play) -> bool:
    """S2."""
    play.save(b"a")
    play.save(b"b", b"c", expiry_ms=1000)
    play.wait(1000)
    play.save(b"d")
    return play.payloads() != [b"a", b"d"]


def reused(play: Play) -> bool:
    """S3: identifiers 1..3; the first message is never acknowledged."""
    play.save(b"a")
    play.save_and_acknowledge(2)
    play.save(b"b")
    return play.payloads() != [b"a", b"b"]


def late(play: Play) -> bool:
    """S4."""
    play.save(b"a")
    (first,) = play.waiting()
    play.answer("acknowledge", first)
    play.save_and_acknowledge(2)
    play.save(b"b")
    assert play.waiting()[0].packet_id == first.packet_id
    play.answer("acknowledge", first)
    return play.payloads() != [b"b"]


def wrapped(play: Play) -> bool:
    """S5."""
    play.save_and_acknowledge(2)
    play.save(b"a")
    play.save(b"b")
    return play.payloads() != [b"a", b"b"]


def counter_lost(play: Play) -> bool:
    """S6."""
    play.save(b"a")
    play.store.perform("open", epoch=2)
    return play.save(b"b").first != 2


def two_writers(play: Play) -> bool:
    """S7: the first call of one save, then all of another, then the rest of the first."""
    play.batch = 1
    first = play.save_fields([b"a"])
    other = {**play.save_fields([b"b"]), "producer": b"q"}
    replies: list[Any] = []
    answer = play.store.binding.step("save", {"client": b"c", **first}, replies)
    interrupted = False
    while not isinstance(answer, Saved):
        argv = answer.argv_with_source if isinstance(answer, ScriptCall) else answer.argv
        replies.append(play.store.connection.execute(*argv))
        if not interrupted:
            interrupted = True
            play.store.perform("save", **other)
        answer = play.store.binding.step("save", {"client": b"c", **first}, replies)
    return sorted(play.payloads()) != [b"a", b"b"]


def no_limit(play: Play) -> bool:
    """S8."""
    return isinstance(play.save(b"a", limit=0), Saved) and play.payloads() == []


def twice(play: Play) -> bool:
    """S9, both halves: one of two equal messages is lost, and two of one millisecond are swapped."""
    play.save(b"x")
    play.save(b"x")
    lost = play.payloads() != [b"x", b"x"]
    play.save(b"b")
    play.save(b"a")
    return lost and play.payloads()[-2:] != [b"b", b"a"]


def fetched_and_gone(play: Play) -> bool:
    """S10."""
    play.save(b"a")
    play.payloads()
    return play.payloads() != [b"a"]


def expired_first(play: Play) -> bool:
    """S11."""
    play.save(b"a", b"b", expiry_ms=1000)
    play.save(b"c")
    play.wait(1000)
    return play.payloads(2) != [b"c"]


def quiet_queue(play: Play) -> bool:
    """S12: a message whose own interval is ten times the default, and no traffic."""
    play.save(b"a", expiry_ms=10 * DEFAULT_MS)
    play.wait(2 * DEFAULT_MS)
    play.server_time_passes(b"persist:{c:c}:pending")
    return play.payloads() != [b"a"]


def quiet_counter(play: Play) -> bool:
    """S13."""
    play.save(b"a")
    play.save(b"b")
    play.wait(2 * DEFAULT_MS)
    play.server_time_passes(b"persist:{c:c}:seq")
    return play.save(b"c").first != 3


def slots(play: Play) -> bool:
    """S14."""
    fields = {**play.save_fields([b"a"]), "client": b"}x"}
    return len(hash_slots(play.store.binding.call("save", **fields).keys)) > 1


def halfway(play: Play) -> bool:
    """S15: the body is of a wrong type for the length of one release."""
    play.save(b"a")
    (message,) = play.waiting()
    play.store.connection.execute(b"RENAME", b"{s:c}:b", b"{s:c}:aside")
    play.store.connection.execute(b"SET", b"{s:c}:b", b"x")
    failed = play.answer("release", message)
    play.store.connection.execute(b"RENAME", b"{s:c}:aside", b"{s:c}:b")
    return isinstance(failed, Failed) and play.payloads() != [b"a"]


def already_consumed(play: Play) -> bool:
    """S16: a clean start, and a record that was routed before."""
    play.save(b"a")
    play.store.perform("open", epoch=2, clean_start=1)
    play.save(b"b", epoch=1)
    return play.payloads() != []


SCENARIOS: dict[str, Callable[[Play], bool]] = {
    "published": bad_interval,
    "S2": ghosts,
    "S3": reused,
    "S4": late,
    "S5": wrapped,
    "S6": counter_lost,
    "S7": two_writers,
    "S8": no_limit,
    "S9": twice,
    "S10": fetched_and_gone,
    "S11": expired_first,
    "S12": quiet_queue,
    "S13": quiet_counter,
    "S14": slots,
    "S15": halfway,
    "S16": already_consumed,
}
BY_ID = {
    binding.specimen.id: binding
    for folder in sorted(SPECIMENS.iterdir())
    if folder.is_dir()
    for binding in [load_binding(folder, trust_adapter=True)]
    if binding.specimen is not None and binding.contract is None
}


@pytest.mark.parametrize("number", SCENARIOS)
def test_the_specimen_shows_its_flaw_and_the_neighbour_does_not(
    open_store: Callable[..., Any], connection: Any, number: str
) -> None:
    specimen = BY_ID[number].specimen
    assert specimen is not None
    flawed = Play(open_store(BY_ID[number].path, now_ms=NOW_MS, modulus=3))
    assert SCENARIOS[number](flawed), specimen.scenario
    connection.demand(b"FLUSHALL")
    correct = Play(open_store(specimen.neighbour, now_ms=NOW_MS, modulus=3))
    assert not SCENARIOS[number](correct), specimen.neighbour


def test_every_row_has_its_specimen() -> None:
    rows = {f"S{number}" for number in range(2, 17)}  # S1 lives in published
    assert set(BY_ID) == rows | {"published", "pending"}
