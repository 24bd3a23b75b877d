"""The job queue as a sequential specification: jobs are added, taken under a lease, completed, failed, and come back.

A job is *waiting*, *delayed*, *leased*, *dead* (its attempts are used up) or *completed*. Its identifier is its
caller's. What stores of this kind settle differently (who hands out lease tokens, what happens to a job whose time has
come) are their ``Promises``.

Where the promises leave a choice open, so does the specification:

- a job whose lease has lapsed, or whose delay is over, stays where it is until some call moves it; from then on it may
  be handed out before or after any other of its priority, but before none that is better, and where take itself moves
  it, after none that is worse;
- its late holder may still complete it, as long as nobody else was given it;
- in the very millisecond of a deadline both sides of it are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orderlab.model.contracts.contract import (
    AnyOf,
    Bound,
    Call,
    Contract,
    Crowd,
    Exchange,
    Opening,
    Outcome,
    Reply,
    fresh_name,
    law,
    next_number,
    passes,
)
from orderlab.model.contracts.judge import is_same

WAITING, DELAYED, LEASED, DEAD, COMPLETED = "waiting", "delayed", "leased", "dead", "completed"
"""Where a job is."""
ENUMERATED_MAX = 6
"""Jobs from which on not every choice of those whose deadline is in this very millisecond is told apart."""
LEASE_MS, DELAY_MS, BULK = 1000, 500, 2
"""What is tried in small scopes."""
UNHEARD = "?"
"""Token of a lease whose holder never heard of it."""


class Promises(BaseModel):
    """What a job queue says of itself: table ``[promises]`` of its ``store.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: Literal["store", "caller", "worker", "none"] = "store"
    """Who chooses the token of a lease; "worker": its caller, one for all its jobs; "none": there is none, and whoever
    names a leased job counts as its holder."""
    clocks: Literal["any", "agree"] = "any"
    """Whether the clocks of clients may differ from the server's; "agree": the store assumes that they do not."""
    recovers: Literal["take", "recover"] = "take"
    """Which operation brings jobs back whose lease has lapsed."""
    recovers_after: Literal[1, 2] = 1
    """How many calls of recover it takes; 2: the first marks a job, and the second brings it back."""
    fails: Literal["told", "any"] = "told"
    """What fail replies; "any": nothing that means anything."""
    promotes: Literal["take", "promote"] = "take"
    """Which operation lets jobs join the line whose delay is over."""
    batch: int = Field(100, ge=1, le=1000)
    """Jobs that one call brings back or lets join."""
    attempts_max: int = Field(0, ge=0)
    """Times that a job is handed out before it is dead; 0: as often as it takes."""
    tells: tuple[Literal["job", "token", "attempt", "payload"], ...] = Field(("job", "token"), min_length=1)
    """What take replies with, in this order; "token" may be missing where its caller chooses it."""
    lease_ms: int = Field(LEASE_MS, ge=10)
    """How long a lease is: of a store that fixes it, and does not take <lease_ms>."""
    backoff_ms: int = Field(0, ge=0)
    """What a job that failed waits before its second attempt."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    """Whether it waits as long before each further one, or twice as long as before."""
    priority: Literal["none", "low first", "high first"] = "none"
    """Which number goes first."""
    priorities: tuple[int, ...] = (0, 1)
    """Numbers worth trying: the least and the greatest that callers may give, and any between them."""
    completed: Literal["removed", "kept"] = "removed"
    """What becomes of a completed job: kept ones are cleaned, and not added again."""
    dead_key: Literal["any", "free", "held"] = "any"
    """Whether another job may be added under the deduplication key of one that is dead; "any": nothing is promised."""

    @model_validator(mode="after")
    def _fit_together(self) -> Promises:
        if self.tokens == "none" and "token" in self.tells:
            raise ValueError('tells names a token, and tokens = "none" says that there is none')
        if self.recovers_after > 1 and self.recovers != "recover":
            raise ValueError('recovers_after counts calls of recover: say recovers = "recover"')
        return self


class Job(NamedTuple):
    """One job."""

    name: str
    status: str = WAITING
    priority: int = 0
    is_free: bool = False
    """It has left its place in the line: what was promised of the order among those added does not bind it."""
    until_ms: int = 0
    """Of its delay or its lease."""
    is_over: bool = False
    """The delay or the lease is."""
    marks: int = 0
    """Calls of recover that found the lease lapsed, at least."""
    marks_max: int = 0
    """At most: a store may mark what is still leased, to bring it back later."""
    token: Reply = None
    """Of its last lease."""
    used: tuple[Reply, ...] = ()
    """Tokens of the leases before."""
    attempts: int = 0
    key: str = ""
    """By which doubles are told."""
    payload: str = ""


class Queue(NamedTuple):
    """The jobs in the order in which they were added, and whether any are handed out at all."""

    jobs: tuple[Job, ...] = ()
    is_paused: bool = False

    def job(self, name: Reply) -> Job | None:
        """The job of that name."""
        return next((one for one in self.jobs if one.name == name), None)

    def of(self, status: str) -> list[Job]:
        """All jobs that are there."""
        return [one for one in self.jobs if one.status == status]

    def with_job(self, job: Job) -> Queue:
        """The job in place of the one of its name."""
        return self._replace(jobs=tuple(job if one.name == job.name else one for one in self.jobs))

    def without(self, *names: Reply) -> Queue:
        """These jobs gone."""
        return self._replace(jobs=tuple(one for one in self.jobs if one.name not in names))


def anything(example: Reply = None) -> AnyOf:
    """A reply that says nothing."""
    return AnyOf(lambda reply: True, example, "anything")


class JobQueue(Contract):
    """See the module's text. A store need not have every operation; what it lacks is not tried."""

    optional: ClassVar[Mapping[str, Sequence[str]]] = {"take": ("token",)}
    operations: ClassVar[Mapping[str, Sequence[str]]] = {
        "add": ("job", "payload", "delay_ms", "priority", "key"),
        "add_bulk": ("jobs",),
        "take": ("token", "lease_ms"),
        "heartbeat": ("job", "token", "lease_ms"),
        "complete": ("job", "token"),
        "fail": ("job", "token"),
        "recover": (),
        "promote": (),
        "pause": (),
        "resume": (),
        "clean": ("count",),
        "counts": (),
        "get": ("job",),
    }
    promises_table: ClassVar[type[Promises]] = Promises
    clients: ClassVar[int] = 2
    steps_per_client: ClassVar[int] = 4

    @property
    def clocks_agree(self) -> bool:
        return self.promises.clocks == "agree"

    def __init__(self, promises: Promises | None = None, bound: Bound | None = None) -> None:
        self.promises = promises or Promises()
        self.delay_ms = DELAY_MS if passes(bound or (), "add", "delay_ms") else 0
        """What a job may be delayed by, in what is tried; 0 of a store that delays none."""
        self.key = "k" if passes(bound or (), "add", "key") else ""
        """A deduplication key; none of a store that knows none."""
        self.bound = tuple(self.operations) if bound is None else tuple(bound)
        """Operations that the store has."""

    # -- the specification -------------------------------------------------------------------------------------

    def initial(self) -> Queue:
        return Queue()

    def elapse(self, state: Queue, now_ms: int) -> Queue:
        jobs = tuple(
            one._replace(is_over=True) if one.status in (DELAYED, LEASED) and now_ms > one.until_ms else one
            for one in state.jobs
        )
        return state._replace(jobs=jobs) if jobs != state.jobs else state

    def deadlines_ms(self, state: Queue) -> Iterable[int]:
        return [one.until_ms for one in state.jobs if one.status in (DELAYED, LEASED) and not one.is_over]

    def size(self, state: Queue) -> int:
        return len(state.jobs)

    def outcomes(self, state: Queue, call: Call, now_ms: int) -> Iterable[Outcome]:
        for each in self._at(state, now_ms):
            yield from _OUTCOMES[call.name](self, each, call, now_ms)

    def _at(self, state: Queue, now_ms: int) -> Iterator[Queue]:
        """The state, and those in which some deadlines of this very millisecond have passed."""
        due = [
            one for one in state.jobs if one.status in (DELAYED, LEASED) and not one.is_over and one.until_ms == now_ms
        ]
        for count in range(len(due) + 1) if len(due) <= ENUMERATED_MAX else (0, len(due)):
            for passed in combinations(due, count):
                found = state
                for one in passed:
                    found = found.with_job(one._replace(is_over=True))
                yield found

    def _add(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        held = self._holders(state, call["job"], call["key"])
        if held:
            yield "duplicate", state
        if all(one.name != call["job"] and self._may_let_go(one) for one in held):
            delay_ms = call["delay_ms"]
            status = DELAYED if delay_ms else WAITING
            until_ms = now_ms + delay_ms if delay_ms else 0
            job = Job(
                call["job"],
                status,
                call["priority"],
                bool(delay_ms),
                until_ms,
                key=call["key"],
                payload=call["payload"],
            )
            yield "added", state._replace(jobs=(*state.jobs, job))

    def _holders(self, state: Queue, name: str, key: str) -> list[Job]:
        """The jobs for whose sake another is a double, or may be one."""
        letting_go = (COMPLETED, DEAD) if self.promises.dead_key == "free" else (COMPLETED,)
        return [
            one for one in state.jobs if one.name == name or (key and one.key == key and one.status not in letting_go)
        ]

    def _may_let_go(self, job: Job) -> bool:
        """Whether its key may be free already: it is dead, or will be as soon as some call looks at its lease, and
        nothing is promised of that."""
        is_dead = job.status == DEAD or (job.status == LEASED and job.is_over and self._is_spent(job))
        return is_dead and self.promises.dead_key != "held"

    def _add_bulk(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        names = [name for name in dict.fromkeys(call["jobs"]) if state.job(name) is None]
        yield len(names), state._replace(jobs=(*state.jobs, *(Job(name, payload=name) for name in names)))

    def _take(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        if not self._must_hand_out(state):
            yield None, state
        if state.is_paused:
            return
        for job in self._handed_out(state):
            until_ms = now_ms + call["lease_ms"]
            leased = job._replace(
                status=LEASED, is_free=True, until_ms=until_ms, is_over=False, attempts=job.attempts + 1,
                marks=0, marks_max=0,
                used=(*job.used, job.token)[-4:] if job.token is not None else job.used,
            )  # fmt: skip
            given = call["token"] if self.promises.tokens != "store" else None
            yield self._handing(job, given), self._leasing(state, leased, given)

    def _handing(self, job: Job, given: Reply) -> AnyOf:
        """The reply with this job under the caller's token, or any that the job has not had yet."""
        attempt = job.attempts + 1
        example = {"job": job.name, "token": given or f"{UNHEARD}{attempt}", "attempt": attempt, "payload": job.payload}

        def accepts(reply: Reply) -> bool:
            told = self._told(reply)
            if told is None:
                return False
            token = told.pop("token", given)
            fresh = token == given if given is not None else token is not None and token not in (job.token, *job.used)
            return fresh and all(is_same(value, example[name]) for name, value in told.items())

        shown = ", ".join(f"{name} {example[name]!r}" for name in self.promises.tells if name != "token")
        weakest = tuple(example[name] for name in self.promises.tells)
        return AnyOf(accepts, weakest, f"{shown}{' with a token that it has not had yet' if given is None else ''}")

    def _told(self, reply: Reply) -> dict[str, Reply] | None:
        """What a reply of take tells by name, or None when it has another shape."""
        names = self.promises.tells
        values = reply if isinstance(reply, tuple) else (reply,) if reply is not None else ()
        return dict(zip(names, values, strict=True)) if len(values) == len(names) else None

    def _leasing(self, state: Queue, leased: Job, given: Reply) -> Callable[[Reply], Queue]:
        return lambda reply: state.with_job(leased._replace(token=(self._told(reply) or {}).get("token", given)))

    def _is_spent(self, job: Job) -> bool:
        """Its attempts are used up."""
        return 0 < self.promises.attempts_max <= job.attempts

    def _waits(self, job: Job) -> bool:
        """It can be handed out, now or once some call has moved it."""
        if job.status == WAITING or (job.status == DELAYED and job.is_over):
            return True
        return job.status == LEASED and job.is_over and not self._is_spent(job) and self._is_given_up(job)

    def _is_given_up(self, job: Job) -> bool:
        """As many calls of recover may have marked the leased job as it takes; where one does, none is waited for."""
        return self.promises.recovers_after == 1 or job.marks_max >= self.promises.recovers_after

    def _is_moved(self, job: Job) -> bool:
        """take itself moves it."""
        return (
            job.status == WAITING
            or (self.promises.promotes if job.status == DELAYED else self.promises.recovers) == "take"
        )

    def may_wait(self, state: Queue, call: Call, now_ms: int) -> bool:
        """Unless a job waits in line. What is delayed or leased needs somebody to move it."""
        return state.is_paused or not state.of(WAITING)

    def _must_hand_out(self, state: Queue) -> bool:
        return not state.is_paused and any(self._waits(one) and self._is_moved(one) for one in state.jobs)

    def _handed_out(self, state: Queue) -> list[Job]:
        """Every job that may be handed out next: none before a better one that is in line, or that take moves."""
        line = state.of(WAITING)
        back = [one for one in state.jobs if one.status != WAITING and self._waits(one)]
        joining = [one for one in back if self._is_moved(one)]
        sure = [*line, *(joining if len(joining) <= self.promises.batch else ())]
        best = min((self._rank(one) for one in sure), default=None)
        first = next((one for one in line if self._rank(one) == best and not one.is_free), None)
        in_turn = [one for one in line if self._rank(one) == best and (one.is_free or one is first)]
        return in_turn + [one for one in back if best is None or self._rank(one) <= best]

    def _rank(self, job: Job) -> int:
        """By which those in line are handed out, the least first."""
        order = self.promises.priority
        return 0 if order == "none" else job.priority if order == "low first" else -job.priority

    def _holding(self, state: Queue, call: Call) -> Job | None:
        """The job that the call's token holds, or may still hold."""
        job = state.job(call["job"])
        return job if job is not None and job.status == LEASED and job.token == call["token"] else None

    def _heartbeat(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        job = self._holding(state, call)
        if job is None or job.is_over:
            yield "lost", state
        if job is not None:
            marks_max = min(job.marks_max, self.promises.recovers_after - 1)
            until_ms = now_ms + call["lease_ms"]
            yield "ok", state.with_job(job._replace(until_ms=until_ms, is_over=False, marks=0, marks_max=marks_max))

    def _complete(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        job = self._holding(state, call)
        if job is None or job.is_over:
            yield "lost", state
        if job is not None:
            kept = self.promises.completed == "kept"
            yield "ok", state.with_job(Job(job.name, COMPLETED)) if kept else state.without(job.name)

    def _fail(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        for reply, after in self._failed(state, call, now_ms):
            yield reply if self.promises.fails == "told" else anything(), after

    def _failed(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        job = self._holding(state, call)
        if job is None or job.is_over:
            yield "lost", state
        if job is None:
            return
        if self._is_spent(job):
            yield "dead", state.with_job(job._replace(status=DEAD, is_over=False, until_ms=0))
            return
        wait_ms = self.promises.backoff_ms * (2 ** (job.attempts - 1) if self.promises.backoff == "exponential" else 1)
        after = job._replace(
            status=DELAYED if wait_ms else WAITING, until_ms=now_ms + wait_ms if wait_ms else 0, is_over=False
        )
        yield "retried", state.with_job(after)

    def _recover(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        lapsed = [one for one in state.jobs if one.status == LEASED and one.is_over]
        after = self.promises.recovers_after
        if after > 1:
            is_each = len(lapsed) <= self.promises.batch
            for one in state.of(LEASED):
                most = after if one.is_over else after - 1
                marks = one.marks + (one.is_over and is_each)
                state = state.with_job(one._replace(marks=marks, marks_max=min(one.marks_max + 1, most)))
            lapsed = [one for one in state.of(LEASED) if one.is_over and one.marks >= after]
        yield anything(0), self._moved(state, lapsed)

    def _promote(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        yield anything(0), self._moved(state, [one for one in state.jobs if one.status == DELAYED and one.is_over])

    def _moved(self, state: Queue, due: Sequence[Job]) -> Queue:
        """With these brought back into the line, or dead; as it was where there are more than one call moves."""
        for one in due if len(due) <= self.promises.batch else ():
            dead = one.status == LEASED and self._is_spent(one)
            state = state.with_job(
                one._replace(
                    status=DEAD if dead else WAITING, is_free=True, until_ms=0, is_over=False, marks=0, marks_max=0
                )
            )
        return state

    def _pause(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        yield anything(), state._replace(is_paused=call.name == "pause")

    def _clean(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        """Removes so many of those that are dead or completed; a spent one whose lease has lapsed may count as dead."""
        ended = state.of(DEAD) + state.of(COMPLETED)
        spent = [one for one in state.jobs if one.status == LEASED and one.is_over and self._is_spent(one)]
        for more in range(len(spent) + 1):
            count = min(call["count"], len(ended) + more)
            for gone in combinations([*ended, *spent], count):
                if sum(one in spent for one in gone) <= more:
                    yield count, state.without(*(one.name for one in gone))

    def _counts(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        yield AnyOf(lambda reply: self._agrees(state, reply), self._counted(state), "as many as there are"), state

    @staticmethod
    def _counted(state: Queue) -> tuple[int, ...]:
        return tuple(len(state.of(status)) for status in (WAITING, DELAYED, LEASED, DEAD))

    def _agrees(self, state: Queue, reply: Reply) -> bool:
        """Whether (waiting, delayed, leased, dead) are numbers of these jobs, wherever those are whose time is over."""
        if not (isinstance(reply, tuple) and len(reply) == 4 and all(type(one) is int and one >= 0 for one in reply)):
            return False
        open_jobs = [one for one in state.jobs if one.is_over]
        least = self._counted(state._replace(jobs=tuple(one for one in state.jobs if not one.is_over)))
        more = [told - sure for told, sure in zip(reply, least, strict=True)]
        spent = sum(one.status == LEASED and self._is_spent(one) for one in open_jobs)
        delayed = sum(one.status == DELAYED for one in open_jobs)
        leased = len(open_jobs) - delayed
        _, late, held, dead = more
        is_placed = late <= delayed and spent - dead <= held <= leased and dead <= spent  # what is spent does not wait
        return bool(min(more) >= 0 and sum(more) == len(open_jobs) and is_placed)

    def _get(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        job = state.job(call["job"])
        if job is None:
            yield None, state
            return
        yield job.status, state
        if job.is_over:
            yield DEAD if job.status == LEASED and self._is_spent(job) else WAITING, state

    # -- calls worth trying ------------------------------------------------------------------------------------

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        return [one for one in self._calls(client, seen) if one.name in self.bound]

    def _calls(self, client: int, seen: Sequence[Exchange]) -> Iterator[Call]:
        added = [name for one in seen for name in _names(one.call)]
        low, *_, high = (*self.promises.priorities, *self.promises.priorities)
        fresh = fresh_name(next_number([names for one in seen if (names := _names(one.call))]), client)
        taken = [
            (one.call, told) for one in reversed(seen) if one.call.name == "take" and (told := self._told(one.reply))
        ][:2]
        fixed = {"worker": f"w{client}", "none": ""}
        token = fixed.get(self.promises.tokens, f"t{client}.{sum(one.call.name == 'take' for one in seen)}")
        take = Call.of("take", token=token, lease_ms=self.promises.lease_ms)
        middle = self.promises.priorities[len(self.promises.priorities) // 2]
        plain = Call.of(
            "add", job=fresh, payload=f"p{fresh}", delay_ms=0, priority=middle if client == 1 else low, key=""
        )
        if died := next(
            (one.call["job"] for one in reversed(seen) if one.call.name == "fail" and one.reply == "dead"), None
        ):
            yield Call.of("clean", count=1)
            if (
                seen[-1].call.name == "clean" and seen[-1].reply == 1
            ):  # nothing of it is left, so that its name is one like any other
                yield Call.of("add", job=died, payload=f"p{died}", delay_ms=0, priority=low, key="")
        if not taken:
            yield plain
            yield take
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
        if high != low:
            yield Call.of("add", job=fresh, payload=f"p{fresh}", delay_ms=0, priority=high, key="")
        for name in added[:1]:
            if not taken or name != taken[0][1].get("job"):
                yield Call.of("get", job=name)
        yield Call.of("add_bulk", jobs=tuple(f"{fresh}.{9 - number}" for number in range(BULK)))

    def openings(self) -> Sequence[Opening]:
        taken: tuple[tuple[int, str, Mapping[str, Any]], ...] = ((0, "add", {"delay_ms": 0}), (0, "take", {}))
        last = (0, "add", {"delay_ms": 0, "priority": self.promises.priorities[-1]})
        most, lease_ms, delay_ms = self.promises.attempts_max, self.promises.lease_ms, self.delay_ms
        keyed: tuple[int, str, Mapping[str, Any]] = (0, "add", {"key": self.key, "delay_ms": delay_ms})
        first = (keyed, delay_ms + 1) if "promote" not in self.bound else ((0, "add", {"delay_ms": 0}),)
        back: tuple[tuple[int, str, Mapping[str, Any]], ...] = (
            ((1, "recover", {}),) * self.promises.recovers_after if self.promises.recovers == "recover" else ()
        )
        ripe: tuple[tuple[int, str, Mapping[str, Any]], ...] = (
            ((1, "promote", {}),) if self.promises.promotes == "promote" else ()
        )
        lapsing: tuple[tuple[int, str, Mapping[str, Any]] | int, ...] = ((0, "take", {}), lease_ms + 1)
        used_up = (*first, *((*lapsing, *back) * (most - 1)), *lapsing) if 1 < most <= 4 else ()
        again_ms = self.promises.backoff_ms * 2**most + 1
        dead = (*first, *(((0, "take", {}), (0, "fail", {}), again_ms, *ripe) * most))
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
                "with a job that has come back to another",
                (*taken, lease_ms + 1, (1, "add", {"delay_ms": 0}), *(back or ((1, "recover", {}),))),
            ),
            Opening("with a job that has come to its end", (keyed, delay_ms + 1, (0, "take", {}), (0, "complete", {}))),
            *([Opening("with a job that is dead", dead)] if 0 < most <= 4 else []),
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

    # -- laws --------------------------------------------------------------------------------------------------

    @law("no-loss", "a job that was accepted is handed out, or is told where it is, until it ends")
    def no_loss(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "take" and before.of(WAITING) and not before.is_paused:
            return reply is not None
        if call.name == "get" and before.job(call["job"]) is not None:
            return reply is not None
        if call.name == "add" and reply == "duplicate":
            return bool(self._holders(before, call["job"], call["key"]))
        return None

    @law("exclusive-lease", "a job is held by one worker at a time, and only its holder renews, completes or fails it")
    def exclusive_lease(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "take" and (told := self._told(reply)):
            job = before.job(told.get("job"))
            return (
                None
                if job is None or job.status != LEASED
                else (job.is_over or job.until_ms == now_ms) and self._is_given_up(job)
            )
        if call.name not in ("heartbeat", "complete", "fail") or (call.name == "fail" and self.promises.fails == "any"):
            return None
        job = self._holding(before, call)
        if job is None:
            return bool(reply == "lost")
        return None if job.is_over or job.until_ms == now_ms else reply != "lost"

    @law(
        "no-rerun",
        "a job that has ended is not handed out, nor more often than promised, and attempts are counted once",
    )
    def no_rerun(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "add" and reply == "added":
            return before.job(call["job"]) is None
        if call.name == "fail" and reply in ("retried", "dead") and (job := self._holding(before, call)) is not None:
            return bool((reply == "dead") == self._is_spent(job))
        if call.name != "take" or not (told := self._told(reply)):
            return None
        job = before.job(told.get("job"))
        if job is None or job.status in (DEAD, COMPLETED) or (job.status == LEASED and self._is_spent(job)):
            return False
        return told.get("attempt", job.attempts + 1) == job.attempts + 1  # type: ignore[no-any-return]

    @law(
        "order",
        "jobs are handed out by priority and in the order in which they were added; a delayed one not before its "
        "time, nor stuck after it",
    )
    def order(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "take" or before.is_paused:
            return None
        if told := self._told(reply):
            job = before.job(told.get("job"))
            if job is None or job.status not in (WAITING, DELAYED):
                return None
            if job.status == DELAYED:
                late = job if job.is_over else job._replace(is_over=job.until_ms == now_ms)
                return late.is_over and late in self._handed_out(before.with_job(late))
            others = len(before.of(WAITING)) > 1 or any(one.is_over for one in before.of(DELAYED))
            return job in self._handed_out(before) if others else None
        due = [one for one in before.of(DELAYED) if one.is_over and self._is_moved(one)]
        return False if due and not before.of(WAITING) else None

    @law("recovery", "a job whose lease has lapsed is handed out again")
    def recovery(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "take" or before.is_paused:
            return None
        if (
            self.promises.recovers == "recover"
        ):  # which has brought them back into the line, where they wait as others do
            return reply is not None if any(one.attempts for one in before.of(WAITING)) else None
        lapsed = [one for one in before.of(LEASED) if self._waits(one) and self._is_moved(one)]
        return reply is not None or bool(before.of(WAITING)) if lapsed else None

    @law("agreement-of-counts", "what the store tells about numbers is what its lists hold", ("counts", "add_bulk"))
    def agreement_of_counts(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "counts":
            return self._agrees(before, reply)
        return reply == next(iter(self._add_bulk(before, call, now_ms)))[0] if call.name == "add_bulk" else None


def _names(call: Call) -> Sequence[str]:
    """The jobs that a call adds."""
    return (call["job"],) if call.name == "add" else call["jobs"] if call.name == "add_bulk" else ()


_Outcomes = Callable[[JobQueue, Queue, Call, int], Iterator[Outcome]]
_OUTCOMES: Mapping[str, _Outcomes] = {
    **{name: getattr(JobQueue, f"_{name}") for name in JobQueue.operations if name != "resume"},
    "resume": JobQueue._pause,
}
