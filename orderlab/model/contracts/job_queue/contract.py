"""The job queue as a sequential specification: jobs are added, taken under a lease, completed, failed, and come back.

A job is *waiting*, *delayed*, *leased*, *dead* (its attempts are used up) or *completed*. Its identifier is its
caller's. What stores of this kind settle differently (who hands out lease tokens, what happens to a job whose time has
come) are their ``Promises``.

Where the promises leave a choice open, so does the specification:

- a job whose lease has lapsed, or whose delay is over, stays where it is until some call moves it; from then on it may
  be handed out before or after any other of its priority, but before none that is better, and where take itself moves
  it, after none that is worse;
- its late holder may still complete it, as long as nobody else was given it;
- in the very millisecond of a deadline (and before it, within ``resolution_ms``) both sides of it are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import ClassVar

from orderlab.model.contracts.base import AnyOf, Call, Outcome, Reply
from orderlab.model.contracts.job_queue.laws import JobQueueLaws
from orderlab.model.contracts.job_queue.promises import (
    COMPLETED,
    DEAD,
    DELAYED,
    ENUMERATED_MAX,
    LEASED,
    PAST_MAX,
    UNHEARD,
    WAITING,
    Job,
    Queue,
    anything,
    names_added,
)
from orderlab.model.contracts.job_queue.workload import JobQueueWorkload
from orderlab.model.contracts.judge import is_same


class JobQueue(JobQueueLaws, JobQueueWorkload):
    """See the module's text. A store need not have every operation; what it lacks is not tried."""

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

    @property
    def optional(self) -> Mapping[str, Sequence[str]]:  # type: ignore[override]
        """The token, where a store chooses it, or knows none."""
        settling = ("take", "heartbeat", "complete", "fail") if self.promises.tokens == "none" else ("take",)
        return dict.fromkeys(settling, ("token",))

    def initial(self) -> Queue:
        return Queue()

    def may_repeat(self, call: Call) -> bool:
        return self.promises.names == "any" or not names_added(call)

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
        """The state, and those in which some deadlines of this very millisecond (or second) have passed."""
        timed = (job for job in state.jobs if job.status in (DELAYED, LEASED) and not job.is_over)
        due = [job for job in timed if self._may_be_over(job, now_ms)]
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
            until_ms = now_ms + delay_ms if delay_ms else self._joined_ms(now_ms)
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

    def _add_bulk(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        names = self._new_names(state, call)
        until_ms = self._joined_ms(now_ms)
        jobs = (Job(name, payload=name, until_ms=until_ms) for name in names)
        yield len(names), state._replace(jobs=(*state.jobs, *jobs))

    def _joined_ms(self, now_ms: int) -> int:
        """When a job that waits was added, where that decides which may go first."""
        return now_ms if self.promises.ties == "any" else 0

    def _take(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        if not self._must_hand_out(state):
            yield None, state
        if state.is_paused:
            return
        for job in self._handed_out(state):
            until_ms = now_ms + call["lease_ms"]
            leased = self._ended(job, stalls=job.status == LEASED)._replace(
                status=LEASED, is_free=True, until_ms=until_ms, is_over=False, attempts=job.attempts + 1,
                marks=0, marks_max=0,
                used=(*job.used, job.token)[-4:] if job.token is not None else job.used,
            )  # fmt: skip
            given = call["token"] if self.promises.tokens != "store" else None
            yield self._handing(state, job, given), self._leasing(state, leased, given)

    def _handing(self, state: Queue, job: Job, given: Reply) -> AnyOf:
        """The reply with this job under the caller's token, or any that the job has not had yet."""
        attempt = self._number(job)
        had = {job.token, *job.used, *(token for name, token in state.past if name == job.name)}
        unheard = next(token for at in range(len(had) + 1) if (token := f"{UNHEARD}{attempt + at}") not in had)
        example = {"job": job.name, "token": given or unheard, "attempt": attempt, "payload": job.payload}

        def accepts(reply: Reply) -> bool:
            told = self._told(reply)
            if told is None:
                return False
            token = told.pop("token", given)
            fresh = token == given if given is not None else token is not None and token not in had
            return fresh and all(is_same(value, example[name]) for name, value in told.items())

        shown = ", ".join(f"{name} {example[name]!r}" for name in self.promises.tells if name != "token")
        weakest = tuple(example[name] for name in self.promises.tells)
        return AnyOf(accepts, weakest, f"{shown}{' with a token that it has not had yet' if given is None else ''}")

    def _leasing(self, state: Queue, leased: Job, given: Reply) -> Callable[[Reply], Queue]:
        return lambda reply: state.with_job(leased._replace(token=(self._told(reply) or {}).get("token", given)))

    def may_wait(self, state: Queue, call: Call, now_ms: int) -> bool:
        """Unless a job waits in line. What is delayed or leased needs somebody to move it."""
        return state.is_paused or not state.of(WAITING)

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
            had = job.token if self.promises.tokens == "store" else None
            ended = Job(job.name, COMPLETED, token=had)
            yield "ok", state.with_job(ended) if kept else self._without(state, job.name)

    def _without(self, state: Queue, *names: Reply) -> Queue:
        """These jobs gone; their tokens are remembered, for a store shall not choose them again for their names."""
        left = state.without(*names)
        if self.promises.tokens != "store" or self.promises.names != "any":
            return left
        gone = [one for one in state.jobs if one.name in names]
        past = [(one.name, token) for one in gone for token in (*one.used, one.token) if token is not None]
        return left._replace(past=(*state.past, *past)[-PAST_MAX:])

    def _fail(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        for reply, after in self._failed(state, call, now_ms):
            yield reply if self.promises.fails == "told" else anything(), after

    def _failed(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        job = self._holding(state, call)
        if job is None or job.is_over:
            yield "lost", state
        if job is None:
            return
        if self._fails_last(job):
            yield "dead", state.with_job(job._replace(status=DEAD, is_over=False, until_ms=0))
            return
        earlier = job.attempts - 1 if self.promises.attempts == "taken" else job.failures
        wait_ms = self.promises.backoff_ms * (2**earlier if self.promises.backoff == "exponential" else 1)
        after = self._ended(job, failures=1)._replace(
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
                self._ended(one, stalls=one.status == LEASED)._replace(
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
                    yield count, self._without(state, *(one.name for one in gone))

    def _counts(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        yield AnyOf(lambda reply: self._agrees(state, reply), self._counted(state), "as many as there are"), state

    def _get(self, state: Queue, call: Call, now_ms: int) -> Iterator[Outcome]:
        job = state.job(call["job"])
        if job is None:
            yield None, state
            return
        yield job.status, state
        if job.is_over:
            yield DEAD if job.status == LEASED and self._is_spent(job) else WAITING, state


_Outcomes = Callable[[JobQueue, Queue, Call, int], Iterator[Outcome]]
_OUTCOMES: Mapping[str, _Outcomes] = {
    **{name: getattr(JobQueue, f"_{name}") for name in JobQueue.operations if name != "resume"},
    "resume": JobQueue._pause,
}
