"""What is tried with a queue of jobs: calls worth trying, where short runs begin, crowds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from orderlab.model.contracts.base import (
    DURATIONS_MS,
    TEXT_BYTES,
    Call,
    Crowd,
    Exchange,
    Opening,
    fresh_name,
    next_number,
    next_serial,
)
from orderlab.model.contracts.job_queue.promises import (
    BULK,
    PromisedQueue,
    names_added,
)

WORKERS = 3
"""Names of workers: jobs come without end, and workers are a few that stay."""


class JobQueueWorkload(PromisedQueue):
    """A store need not have every operation; what it lacks is not tried."""

    clients: ClassVar[int] = 2

    steps_per_client: ClassVar[int] = 4

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        return [one for one in self._calls(client, seen) if one.name in self.bound]

    def _calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        added = [name for one in seen for name in names_added(one.call)]
        low, *_, high = (*self.promises.priorities, *self.promises.priorities)
        fresh = fresh_name(next_number([names for one in seen if (names := names_added(one.call))]), client)
        taken = [
            (one.call, told) for one in reversed(seen) if one.call.name == "take" and (told := self._told(one.reply))
        ][:2]
        fixed = {"worker": f"w{min(client, WORKERS - 1)}", "none": ""}
        asked_for = (
            [] if self.promises.tokens in fixed else [one.call["token"] for one in seen if one.call.name == "take"]
        )
        token = fixed.get(self.promises.tokens, f"t{client}.{next_serial(0, asked_for)}")
        take = Call.of("take", token=token, lease_ms=self.promises.lease_ms)
        middle = self.promises.priorities[len(self.promises.priorities) // 2]
        plain = Call.of(
            "add", job=fresh, payload=f"p{fresh}", delay_ms=0, priority=middle if client == 1 else low, key=""
        )
        yield from self._again(seen, low)
        if not taken:
            yield plain
            yield take
        first = fresh_name(0, 0)
        if client == 1 and not seen and self.promises.names == "any":  # two add the same
            yield Call.of("add", job=first, payload=f"p{first}", delay_ms=0, priority=low, key="")
        for asked, told in taken:
            job, held_token = told.get("job"), told.get("token", asked["token"])
            yield Call.of("complete", job=job, token=held_token)
            yield Call.of("fail", job=job, token=held_token)
            yield Call.of("heartbeat", job=job, token=held_token, lease_ms=self.promises.lease_ms)
        for _, told in taken[:1]:
            yield Call.of("get", job=told.get("job"))
        if taken:
            yield take
            yield plain
        yield Call.of("recover")
        yield Call.of("promote")
        yield Call.of("counts")
        yield Call.of("add", job=fresh, payload=f"p{fresh}", delay_ms=self.delay_ms, priority=high, key=self.key)
        yield Call.of("clean", count=1)
        yield Call.of("pause")
        yield Call.of("resume")
        yield Call.of("clean", count=1)
        if high != low or self.key:
            key = "" if added else self.key  # the same key twice is a double, and no job in line
            yield Call.of("add", job=fresh, payload=f"p{fresh}", delay_ms=0, priority=high, key=key)
        for name in added[:1]:
            if not taken or name != taken[0][1].get("job"):
                yield Call.of("get", job=name)
        if self.key and added and self.promises.names == "any":  # a double by name, which leaves the key alone
            yield Call.of("add", job=added[-1], payload=f"p{added[-1]}", delay_ms=0, priority=low, key=self.key)
        yield Call.of("add_bulk", jobs=tuple(f"{fresh}.{9 - number}" for number in range(BULK)))

    def _again(self, seen: Sequence[Exchange], priority: int) -> Iterator[Call]:
        """What a client does once a job has come to its end: clean up after it, and add another of its name."""
        died = [one.call["job"] for one in seen if one.call.name == "fail" and one.reply == "dead"][-2:]
        if died:
            yield Call.of("clean", count=1)
        last = seen[-1] if seen else None
        done = next(
            (one.call["job"] for one in reversed(seen) if one.call.name == "complete" and one.reply == "ok"), None
        )
        names: list[Any] = []
        if last is not None and last.call.name == "complete" and last.reply == "ok":
            names = [done]
        elif last is not None and last.call.name == "clean" and last.reply == 1:
            names = died or [done] * (done is not None)  # of two dead ones either may have been removed
        for name in names if self.promises.names == "any" else ():
            yield Call.of("add", job=name, payload=f"p{name}", delay_ms=0, priority=priority, key="")

    def ranges(self) -> Mapping[str, tuple[int, int]]:
        return {
            "delay_ms": (0, DURATIONS_MS[1]),
            "lease_ms": DURATIONS_MS,
            "priority": (min(self.promises.priorities), max(self.promises.priorities)),
            "payload": TEXT_BYTES,
            "count": (1, 1_000_000),
        }

    def openings(self) -> Sequence[Opening]:
        taken: tuple[tuple[int, str, Mapping[str, Any]], ...] = ((0, "add", {"delay_ms": 0}), (0, "take", {}))
        last = (0, "add", {"delay_ms": 0, "priority": self.promises.priorities[-1]})
        most, lease_ms, delay_ms = self.promises.attempts_max, self.promises.lease_ms, self.delay_ms
        keyed: tuple[int, str, Mapping[str, Any]] = (0, "add", {"key": self.key, "delay_ms": delay_ms})
        back: tuple[tuple[int, str, Mapping[str, Any]], ...] = (
            ((1, "recover", {}),) * self.promises.recovers_after if self.promises.recovers == "recover" else ()
        )
        ripe: tuple[tuple[int, str, Mapping[str, Any]], ...] = (
            ((1, "promote", {}),) if self.promises.promotes == "promote" else ()
        )
        first: tuple[tuple[int, str, Mapping[str, Any]] | int, ...] = (keyed, delay_ms + 1, *ripe)
        lapsing: tuple[tuple[int, str, Mapping[str, Any]] | int, ...] = ((0, "take", {}), lease_ms + 1)
        lapses = most if self.promises.attempts == "taken" else (self.promises.stalls_max or 0) + 1
        marked = back[1:]  # all but the call that brings it back
        used_up = (*first, *((*lapsing, *back) * (lapses - 1)), *lapsing, *marked) if 1 < lapses <= 4 else ()
        again_ms = self.promises.backoff_ms * 2**most + 1
        dies = ((0, "take", {}), (0, "fail", {}), again_ms, *ripe) * most
        dead = (*first, *dies)
        overdue_ms = max(lease_ms, self.promises.backoff_ms) + 1
        return (
            *([Opening("with a lease of the last attempt that has lapsed", used_up)] if used_up else []),
            Opening("with two jobs that wait", ((0, "add", {"delay_ms": 0}), (0, "add", {"delay_ms": 0}))),
            *(
                [Opening("with two jobs of the last priority", (last, last))]
                if len(self.promises.priorities) > 1
                else []
            ),
            Opening("with a job that is leased", taken),
            Opening("with a lease that has lapsed", (*taken, lease_ms + 1)),
            Opening(
                "with a lease that was renewed and would be over",
                (*taken, lease_ms // 2, (0, "heartbeat", {}), lease_ms // 2 + 1),
            ),
            *(
                [
                    Opening(
                        "with a job that is taken again after a lapse", (*taken, lease_ms + 1, *back, (1, "take", {}))
                    )
                ]
                if self.promises.attempts == "failed"
                else []
            ),
            Opening(
                "with a job that has come back to another",
                (*taken, lease_ms + 1, (1, "add", {"delay_ms": 0}), *(back or ((1, "recover", {}),))),
            ),
            Opening("with a job that has come to its end", (keyed, delay_ms + 1, (0, "take", {}), (0, "complete", {}))),
            *(
                [
                    Opening("with a job that is dead", dead),
                    Opening("with two jobs that are dead", (*dead, (0, "add", {"delay_ms": 0}), *dies)),
                ]
                if 0 < most <= 4
                else []
            ),
            Opening(
                "with a job that has failed once",
                (*taken, (0, "fail", {}), self.promises.backoff_ms + 1, *ripe, (1, "take", {})),
            ),
            Opening("with a job that failed in a lease that would be over", (*taken, (0, "fail", {}), overdue_ms)),
            *([Opening("with a job that is delayed", ((0, "add", {"delay_ms": delay_ms}),))] if delay_ms else []),
            Opening("with the queue paused", ((0, "add", {"delay_ms": 0}), (0, "pause", {}))),
        )

    def crowds(self) -> Sequence[Crowd]:
        def adds(size: int, delay_ms: int = 0) -> Iterator[tuple[int, Call] | int]:
            for number in range(size):
                name = f"j{size - number}"
                yield (
                    0,
                    Call.of(
                        "add", job=name, payload=name, delay_ms=delay_ms, priority=self.promises.priorities[0], key=""
                    ),
                )

        def bulk(size: int) -> Iterator[tuple[int, Call] | int]:
            yield 0, Call.of("add_bulk", jobs=tuple(f"j{size - number}" for number in range(size)))

        def due(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from adds(size, self.delay_ms)
            yield self.delay_ms + 1

        def lapsed(size: int) -> Iterator[tuple[int, Call] | int]:
            yield from adds(size)
            yield from (
                (0, Call.of("take", token=f"t{number}", lease_ms=self.promises.lease_ms)) for number in range(size)
            )
            yield self.promises.lease_ms + 1

        many = "add_bulk" in self.bound
        # More than one call moves, so that what is promised of it can be seen.
        sizes = (self.promises.batch * 3 // 2, self.promises.batch * 4)
        return (
            Crowd("jobs that wait", (300, 9000) if many else sizes, bulk if many else adds),
            *([Crowd("jobs whose delay is over", sizes, due)] if self.delay_ms else []),
            Crowd("leases that have lapsed", sizes, lapsed),
        )
