"""The session's contract as the oracle of code that keeps messages for a client: right programs, and flawed ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("redis")

from orderlab.clients import race, scenario
from orderlab.contract import Call
from orderlab.model.contracts.judge import Judge
from orderlab.model.contracts.session.message_queue import SessionPromises, SessionQueue

SAVE = """
local id = redis.call('INCR', KEYS[2])
redis.call('ZADD', KEYS[1], id, id .. ':' .. ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -tonumber(ARGV[2]) - 1)
return id
"""


class Inbox:
    """Messages of one client by packet identifier."""

    def __init__(self, redis: Any, limit: int = 10) -> None:
        self.redis, self.limit = redis, limit

    def save(self, message: str) -> int:
        return int(self.redis.eval(SAVE, 2, "inbox", "last", message, self.limit))

    def save_in_two(self, message: str) -> int:
        packet_id = int(self.redis.incr("last"))
        self.redis.zadd("inbox", {f"{packet_id}:{message}": packet_id})
        return packet_id

    def save_by_length(self, message: str) -> int:
        packet_id = int(self.redis.zcard("inbox")) + 1
        self.redis.zadd("inbox", {f"{packet_id}:{message}": packet_id})
        return packet_id

    def fetch(self) -> list[tuple[int, str]]:
        pairs = [each.decode().split(":", 1) for each in self.redis.zrange("inbox", 0, -1)]
        return [(int(packet_id), message) for packet_id, message in pairs]

    def fetch_unsorted(self) -> list[tuple[int, str]]:
        return self.fetch()[::-1]

    def acknowledge(self, packet_id: int) -> int:
        return int(self.redis.zremrangebyscore("inbox", packet_id, packet_id))

    def acknowledge_the_first(self, packet_id: int) -> int:
        return len(self.redis.zpopmin("inbox"))


Saving = Callable[[Inbox, str], int]


def publishes(saving: Saving) -> Callable[..., None]:
    def client(redis: Any, at: Any) -> None:
        inbox, message = Inbox(redis), f"m{at.client}"
        at.does("save", lambda: saving(inbox, message), message=message)

    return client


def reads(fetching: Any = Inbox.fetch, acknowledging: Any = Inbox.acknowledge) -> Callable[..., None]:
    def client(redis: Any, at: Any) -> None:
        inbox = Inbox(redis)
        for packet_id, _ in at.does("fetch", lambda: fetching(inbox))[-1:]:
            at.does("acknowledge", partial(acknowledging, inbox, packet_id), packet_id=packet_id)
            at.does("fetch", lambda: fetching(inbox))

    return client


def inbox(saving: Saving, reading: Any = None, **promises: Any) -> Any:
    clients = [publishes(saving), publishes(saving), reading or reads()]
    return scenario(clients=clients, oracle="session", promises=promises)(lambda redis: None)


def test_an_inbox_of_one_script_keeps_the_session_s_contract() -> None:
    verdict = race(inbox(Inbox.save))
    assert (str(verdict.outcome), verdict.law) == ("holds", ""), verdict.what
    assert {"store-order", "no-loss", "packet-id", "counter", "no-phantom"} <= set(verdict.laws)


@pytest.mark.parametrize(
    ("saving", "reading", "promises", "law"),
    [
        (Inbox.save_in_two, None, {}, "no-loss"),
        (Inbox.save_by_length, None, {}, "counter"),
        (Inbox.save_by_length, None, {"identifiers": "any"}, "packet-id"),
        (Inbox.save, reads(fetching=Inbox.fetch_unsorted), {}, "store-order"),
        (Inbox.save, reads(acknowledging=Inbox.acknowledge_the_first), {}, "no-phantom"),
    ],
)
def test_a_flaw_breaks_its_law(saving: Saving, reading: Any, promises: dict[str, Any], law: str) -> None:
    verdict = race(inbox(saving, reading, **promises))
    assert verdict.law == law, verdict.what


def replied(contract: SessionQueue, *rows: tuple[str, dict[str, Any], Any, int]) -> str:
    """The law that the last of these calls breaks; they are made one after the other, each at its millisecond."""
    judge = Judge(contract, 0)
    for number, (name, fields, reply, now_ms) in enumerate(rows):
        judge.at(now_ms)
        judge.begin(number, Call.of(name, **fields))
        violation = judge.finish(number, reply)
        if violation is not None:
            assert number == len(rows) - 1
            return violation.laws[0]
    return ""


A, B = ("save", {"message": "a"}, 1, 0), ("save", {"message": "b"}, 2, 0)


@pytest.mark.parametrize(
    ("promises", "rows", "law"),
    [
        ({}, [A, B, ("fetch", {}, ((1, "a"), (2, "b")), 0)], ""),
        ({"limit": 1}, [A, B, ("fetch", {}, ((2, "b"),), 0)], ""),
        ({"limit": 1}, [A, B, ("fetch", {}, ((1, "a"), (2, "b")), 0)], "no-phantom"),
        ({"page": 1}, [A, B, ("fetch", {}, ((1, "a"),), 0)], ""),
        ({"page": 1}, [A, B, ("fetch", {}, ((2, "b"),), 0)], "no-loss"),
        ({}, [A, ("save", {"message": "b"}, 1, 0)], "packet-id"),
        ({}, [A, ("save", {"message": "b"}, 3, 0)], "counter"),
        ({"identifiers": "any"}, [A, ("save", {"message": "b"}, 3, 0)], ""),
        ({}, [A, ("clear", {}, None, 0), ("save", {"message": "b"}, 1, 0)], ""),
        ({}, [A, ("clear", {}, None, 0), ("save", {"message": "b"}, 2, 0)], ""),
        ({}, [A, ("clear", {}, None, 0), ("fetch", {}, ((1, "a"),), 0)], "no-phantom"),
        ({}, [("save", {"message": "a", "ttl_ms": 5}, 1, 0), ("fetch", {}, (), 5)], ""),
        ({}, [("save", {"message": "a", "ttl_ms": 5}, 1, 0), ("fetch", {}, ((1, "a"),), 5)], ""),
        ({}, [("save", {"message": "a", "ttl_ms": 5}, 1, 0), ("fetch", {}, (), 4)], "no-loss"),
        ({}, [("save", {"message": "a", "ttl_ms": 5}, 1, 0), ("fetch", {}, ((1, "a"),), 6)], "no-phantom"),
    ],
)
def test_what_a_session_may_reply(promises: dict[str, Any], rows: list[Any], law: str) -> None:
    assert replied(SessionQueue(SessionPromises(**promises)), *rows) == law
