"""What rq's workers rely on: jobs are taken in the order in which they were pushed, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from orderlab.contract import Call, Contract, law


class Jobs(NamedTuple):
    """Those that wait, the oldest first, and those that were taken and have not begun."""

    waiting: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


class Fifo(Contract):
    """push(job) -> how many wait; take() -> the oldest, or None; begin(job) -> 1 if it had been taken."""

    operations: ClassVar[Mapping[str, tuple[str, ...]]] = {"push": ("job",), "take": (), "begin": ("job",)}

    def initial(self) -> Jobs:
        return Jobs()

    def outcomes(self, state: Jobs, call: Call, now_ms: int) -> Iterator[tuple[Any, Jobs]]:
        if call.name == "push":
            yield len(state.waiting) + 1, state._replace(waiting=(*state.waiting, call["job"]))
        elif call.name == "begin":
            left = list(state.taken)
            if call["job"] in left:
                left.remove(call["job"])
            yield len(state.taken) - len(left), state._replace(taken=tuple(left))
        elif state.waiting:
            yield state.waiting[0], Jobs(state.waiting[1:], (*state.taken, state.waiting[0]))
        else:
            yield None, state

    def calls(self, client: int, seen: Any) -> Iterator[Call]:
        yield Call.of("push", job=f"job-{client}")
        yield Call.of("take")

    @law("order", "what waits longest is taken first")
    def order(self, before: Jobs, call: Call, reply: Any, now_ms: int) -> bool | None:
        return reply == before.waiting[0] if call.name == "take" and before.waiting and reply else None

    @law("no-loss", "nothing is told as empty while a job waits")
    def no_loss(self, before: Jobs, call: Call, reply: Any, now_ms: int) -> bool | None:
        return reply is not None if call.name == "take" and before.waiting else None
