"""What a queue of jobs is, what a store promises of it, and what follows of a state from the promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orderlab.model.contracts.base import AnyOf, Bound, Call, Clocks, Contract, Reply, passes

WAITING, DELAYED, LEASED, DEAD, COMPLETED = "waiting", "delayed", "leased", "dead", "completed"
"""Where a job is."""
ENUMERATED_MAX = 6
"""Jobs from which on not every choice of those whose deadline is in this very millisecond is told apart."""
LEASE_MS, DELAY_MS, BULK = 1000, 500, 2
"""What is tried in small scopes."""
PAST_MAX = 4
"""Tokens of jobs that are gone that are remembered."""
UNHEARD = "?"
"""Token of a lease whose holder never heard of it."""


class Promises(BaseModel):
    """What a job queue says of itself: table ``[promises]`` of its ``store.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: Literal["store", "caller", "worker", "none"] = "store"
    """Who chooses the token of a lease; "worker": its caller, one for all its jobs; "none": there is none, and whoever
    names a leased job counts as its holder."""
    clocks: Clocks = "any"
    """Whether the clocks of clients may differ from the server's."""
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
    """Times that a job is handed out before it is dead, or fails; 0: as often as it takes."""
    attempts: Literal["taken", "failed"] = "taken"
    """What counts against attempts_max; "failed": failures alone, and leases that lapse are counted apart."""
    stalls_max: int | None = Field(None, ge=0)
    """Leases of a job that may lapse, of attempts = "failed": one more, and it is dead. As many as it takes, unless
    said."""
    tells: tuple[Literal["job", "token", "attempt", "payload"], ...] = Field(("job", "token"), min_length=1)
    """What take replies with, in this order; "token" may be missing where its caller chooses it."""
    lease_ms: int = Field(LEASE_MS, ge=10)
    """How long a lease is: of a store that fixes it, and does not take <lease_ms>."""
    resolution_ms: int = Field(0, ge=0, le=1000)
    """How much earlier than said a lease or a delay may end: 1000 of a store that keeps time in whole seconds."""
    ties: Literal["first", "any"] = "first"
    """Which goes first of jobs that were added in the same millisecond, or within ``resolution_ms``: the one that was
    added first; "any": of a store that sorts them by their moment."""
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
    names: Literal["any", "unique"] = "any"
    """Whether add tells a name that is there already; "unique": the store looks for no doubles, and its callers give
    each job a name that was never used, and add none again."""
    dead_key: Literal["any", "free", "held"] = "any"
    """Whether another job may be added under the deduplication key of one that is dead; "any": nothing is promised."""

    @model_validator(mode="after")
    def _fit_together(self) -> Promises:
        if self.tokens == "none" and "token" in self.tells:
            raise ValueError('tells names a token, and tokens = "none" says that there is none')
        if self.stalls_max is not None and self.attempts != "failed":
            raise ValueError('stalls_max counts leases that lapse apart from failures: say attempts = "failed"')
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
    failures: int = 0
    """And ``stalls``, leases that lapsed: of a store that counts them apart."""
    stalls: int = 0
    key: str = ""
    """By which doubles are told."""
    payload: str = ""


class Queue(NamedTuple):
    """The jobs in the order in which they were added, and whether any are handed out at all."""

    jobs: tuple[Job, ...] = ()
    is_paused: bool = False
    past: tuple[tuple[str, Reply], ...] = ()
    """Names of jobs that are gone, with tokens that they had, the newest last: of a store that chooses tokens."""

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
        """The queue without these jobs."""
        return self._replace(jobs=tuple(one for one in self.jobs if one.name not in names))


def anything(example: Reply = None) -> AnyOf:
    """A reply that says nothing."""
    return AnyOf(lambda reply: True, example, "anything")


def names_added(call: Call) -> Sequence[str]:
    """The jobs that a call adds."""
    return (call["job"],) if call.name == "add" else call["jobs"] if call.name == "add_bulk" else ()


class PromisedQueue(Contract):
    """Reads states by the promises."""

    promises_table: ClassVar[type[Promises]] = Promises

    def __init__(self, promises: Promises | None = None, bound: Bound | None = None) -> None:
        self.promises = promises or Promises()
        self.delay_ms = DELAY_MS if passes(bound or (), "add", "delay_ms") else 0
        """What a job may be delayed by, in what is tried; 0 of a store that delays none."""
        self.key = "k" if passes(bound or (), "add", "key") else ""
        """A deduplication key; none of a store that knows none."""
        self.bound = tuple(self.operations) if bound is None else tuple(bound)
        """Operations that the store has."""

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

    def _may_be_over(self, job: Job, now_ms: int) -> bool:
        """Whether its lease or its delay is over, or both sides of its deadline are right."""
        early_ms = max(1, self.promises.resolution_ms)
        return job.is_over or job.until_ms - early_ms < now_ms <= job.until_ms

    def _told(self, reply: Reply) -> dict[str, Reply] | None:
        """What a reply of take tells by name, or None when it has another shape."""
        names = self.promises.tells
        values = reply if isinstance(reply, tuple) else (reply,) if reply is not None else ()
        if len(values) != len(names):
            return None
        parts = dict(zip(names, values, strict=True))
        attempt = parts.get("attempt")
        return parts | {"attempt": int(attempt)} if isinstance(attempt, str) and attempt.isdecimal() else parts

    def _fails_last(self, job: Job) -> bool:
        """If the leased job fails, its attempts are used up."""
        counted = job.attempts if self.promises.attempts == "taken" else job.failures + 1
        return 0 < self.promises.attempts_max <= counted

    def _is_spent(self, job: Job) -> bool:
        """If the lease of the job lapses, it is dead."""
        if self.promises.attempts == "taken":
            return self._fails_last(job)
        return self.promises.stalls_max is not None and job.stalls >= self.promises.stalls_max

    def _number(self, job: Job) -> int:
        """Of the attempt that begins when the job is handed out."""
        return (job.attempts if self.promises.attempts == "taken" else job.failures) + 1

    def _ended(self, job: Job, failures: int = 0, stalls: int = 0) -> Job:
        """The job once a lease has ended like this, if the store counts them apart."""
        if self.promises.attempts == "taken":
            return job
        return job._replace(failures=job.failures + failures, stalls=job.stalls + stalls)

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
        in_turn = [one for one in line if self._rank(one) == best and (one.is_free or self._ties(one, first))]
        return in_turn + [one for one in back if best is None or self._rank(one) <= best]

    def _ties(self, job: Job, first: Job | None) -> bool:
        """It is the first of those that are bound, or may go before it."""
        if job is first or first is None or self.promises.ties == "first":
            return job is first
        return abs(job.until_ms - first.until_ms) < max(1, self.promises.resolution_ms)

    def _rank(self, job: Job) -> int:
        """By which those in line are handed out, the least first."""
        order = self.promises.priority
        return 0 if order == "none" else job.priority if order == "low first" else -job.priority

    def _holding(self, state: Queue, call: Call) -> Job | None:
        """The job that the call's token holds, or may still hold."""
        job = state.job(call["job"])
        return job if job is not None and job.status == LEASED and job.token == call["token"] else None

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

    def _new_names(self, state: Queue, call: Call) -> list[str]:
        """The jobs of a call that the queue does not know."""
        return [name for name in dict.fromkeys(call["jobs"]) if state.job(name) is None]
