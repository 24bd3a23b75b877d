"""The laws of a queue of jobs: what each says of a call, its reply and the state before it."""

from __future__ import annotations

from orderlab.model.contracts.base import Call, Reply, law
from orderlab.model.contracts.job_queue.promises import COMPLETED, DEAD, DELAYED, LEASED, WAITING, PromisedQueue, Queue


class JobQueueLaws(PromisedQueue):
    """None where a reply does not test the law."""

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
                else self._may_be_over(job, now_ms) and self._is_given_up(job)
            )
        if call.name not in ("heartbeat", "complete", "fail") or (call.name == "fail" and self.promises.fails == "any"):
            return None
        job = self._holding(before, call)
        if job is None:
            return bool(reply == "lost")
        return None if self._may_be_over(job, now_ms) else reply != "lost"

    @law(
        "no-rerun",
        "a job that has ended is not handed out, nor more often than promised, and attempts are counted once",
    )
    def no_rerun(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "add" and reply == "added":
            return before.job(call["job"]) is None
        if call.name == "fail" and reply in ("retried", "dead") and (job := self._holding(before, call)) is not None:
            return bool((reply == "dead") == self._fails_last(job))
        if call.name != "take" or not (told := self._told(reply)):
            return None
        job = before.job(told.get("job"))
        if job is None or job.status in (DEAD, COMPLETED) or (job.status == LEASED and self._is_spent(job)):
            return False
        return told.get("attempt", self._number(job)) == self._number(job)  # type: ignore[no-any-return]

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
                late = job._replace(is_over=self._may_be_over(job, now_ms))
                return late.is_over and late in self._handed_out(before.with_job(late))
            others = len(before.of(WAITING)) > 1 or any(one.is_over for one in before.of(DELAYED))
            return job in self._handed_out(before) if others else None
        due = [one for one in before.of(DELAYED) if one.is_over and self._is_moved(one)]
        return False if due and not before.of(WAITING) else None

    @law("recovery", "a job whose lease has lapsed is handed out again")
    def recovery(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name != "take" or before.is_paused:
            return None
        # Which has brought them back into the line, where they wait as others do.
        if self.promises.recovers == "recover":
            return reply is not None if any(one.attempts for one in before.of(WAITING)) else None
        lapsed = [one for one in before.of(LEASED) if self._waits(one) and self._is_moved(one)]
        return reply is not None or bool(before.of(WAITING)) if lapsed else None

    @law("agreement-of-counts", "what the store tells about numbers is what its lists hold", ("counts", "add_bulk"))
    def agreement_of_counts(self, before: Queue, call: Call, reply: Reply, now_ms: int) -> bool | None:
        if call.name == "counts":
            return self._agrees(before, reply)
        return reply == len(self._new_names(before, call)) if call.name == "add_bulk" else None
