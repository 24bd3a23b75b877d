"""Saves: a producer's next batch, its last one once more, the one before that, and the many that only go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orderlab.model.contracts.session.refinement import Account, Judgement, ObservedMessage, judge_save
from orderlab.model.contracts.session.refinement.account import Batch, Sending
from orderlab.model.contracts.session.refinement.actions import ObservedSave
from orderlab.model.contracts.session.traces import Churn, Retry, Save
from orderlab.properties.contracts.session.run import Run, StepReport, assigned_to, incoming, outgoing, replaced
from orderlab.sim.stores.binding.results import Assigned, Failed, Fetched, Message, Result, Saved
from orderlab.sim.stores.bound import EVERYTHING


def save_next(run: Run, step: Save, report: StepReport) -> None:
    """The producer's next batch; with ``stale`` one that was routed to the session before this one."""
    connection = run.state.connections[step.client]
    epoch = connection.cleared_epoch if step.stale else run.state.accounts[step.client].session.epoch
    if not epoch or not (step.stale or connection.is_open):
        return
    last = run.state.batches[step.producer]
    earlier = last._replace(earlier=None) if last.was_done else last.earlier
    run.register(step)
    batch = Batch(last.number + max(1, len(step.messages)), step, epoch, earlier=earlier)
    after, result = _carry_out(run, batch, step, report)
    run.state = run.state._replace(batches=replaced(run.state.batches, step.producer, after))
    _note_assigned(run, result, step)
    _judge(run, batch, step, report)


def save_again(run: Run, step: Retry, report: StepReport) -> None:
    """The producer's last batch once more. ``older``: the one that was done before it, of a store that has a word for
    it."""
    last = run.state.batches[step.producer]
    batch = last.earlier if step.older else last
    if batch is None or batch.step is None:
        return
    if step.older and (run.store.capabilities.older_word is None or not _is_after(last, batch.step)):
        return
    save = replace(batch.step, fault=None)
    after, result = _carry_out(run, batch, save, report)
    if not step.older:
        run.state = run.state._replace(batches=replaced(run.state.batches, step.producer, after))
        if not batch.was_done:
            _note_assigned(run, result, save)
    _judge(run, batch, save, report, step.older)


def _is_after(last: Batch, earlier: Save) -> bool:
    """Whether the producer's last batch went the way of an earlier one, so that the session can know it is the last.
    One without messages is no call to a store that takes them one by one."""
    step = last.step
    return last.was_done and step is not None and bool(step.messages) and step.client == earlier.client


def _carry_out(run: Run, batch: Batch, step: Save, report: StepReport) -> tuple[Batch, Result]:
    """Make the calls; the batch as it is known afterwards."""
    store, now_ms = run.store, run.state.accounts[step.client].session.now_ms
    fields: dict[str, object] = {
        "epoch": batch.epoch,
        "limit": step.limit,
        "default_expiry_ms": store.default_expiry_ms,
        "producer": run.producers[step.producer],
        "batch": batch.number,
        "messages": tuple(outgoing(one, now_ms) for one in step.messages),
    }
    report.result = result = _in_parts(run, step, fields)
    reply = run.reply_of(result, step.messages)
    told = batch.told or (reply.told or () if store.capabilities.tells_each else ())
    return batch._replace(step=step, was_done=batch.was_done or reply.status == "done", told=told), result


def _judge(run: Run, batch: Batch, step: Save, report: StepReport, is_older: bool = False) -> None:
    """``batch``: as it was known before it came."""
    store = run.store
    reply = run.reply_of(report.result, step.messages)
    run.told = {label: packet_id for label, packet_id, _ in reply.assigned if packet_id is not None}
    saving = ObservedSave(
        tuple(incoming(one, store.default_expiry_ms) for one in step.messages),
        step.limit,
        batch.epoch <= run.state.connections[step.client].cleared_epoch,
        batch.was_done,
        is_older,
        batch.told,
        run.is_overtaken,
    )

    def judge(account: Account, listing: Sequence[ObservedMessage]) -> Judgement:
        return judge_save(account, saving, reply, listing, store.capabilities, step.fault is not None)

    run.judge(report, step.client, judge)
    run.told = {}
    if reply.status == "error":
        _note_done(run, step)


def _note_done(run: Run, step: Save) -> None:
    """A save that failed and was carried out all the same has been done."""
    held = {entry.label for entry in run.state.accounts[step.client].queue}
    last = run.state.batches[step.producer]
    is_last = last.step is not None and last.step.messages == step.messages
    if is_last and any(one.label in held for one in step.messages):
        batches = replaced(run.state.batches, step.producer, last._replace(was_done=True))
        run.state = run.state._replace(batches=batches)


def _in_parts(run: Run, step: Save, fields: dict[str, object]) -> Result:
    """One call; more than the store takes at once goes in several, which are judged together."""
    largest, messages = run.store.largest_batch, fields["messages"]
    assert isinstance(messages, tuple)
    if len(messages) <= largest:
        return run.call(step.fault, "save", step.client, fields)
    assigned: list[Assigned] = []
    counts: list[int | None] = []
    last = fields["batch"]
    assert isinstance(last, int)
    for start in range(0, len(messages), largest):
        part = messages[start : start + largest]
        number = last - (len(messages) - start - len(part))
        result = run.call(step.fault, "save", step.client, fields | {"messages": part, "batch": number})
        if not isinstance(result, Saved) or result.refused is not None:
            return result
        assigned += result.assigned
        counts.append(result.count)
    known = [count for count in counts if count is not None]
    return Saved(tuple(assigned), count=sum(known) if len(known) == len(counts) else None)


def _note_assigned(run: Run, result: Result, step: Save) -> None:
    """What a broker can send at once: the reply to the save told under which identifier."""
    if not isinstance(result, Saved):
        return
    epoch = run.state.accounts[step.client].session.epoch
    told = {
        label: Sending(packet_id, sequence, epoch)
        for label, packet_id, sequence in assigned_to(result, step.messages)
        if packet_id is not None and (sequence is not None or not run.store.capabilities.has_tokens)
    }
    if told:
        run.state = run.state._replace(sendings=tuple(sorted({**dict(run.state.sendings), **told}.items())))


# -- identifiers go by: many messages are saved and go again, without a judgement of each
# ------------------------------------

PASSING_MARK = b"passin"
"""Begins the payload of each: six bytes, so that it begins the base64 of the payload as well."""
EXPIRING_AT_ONCE = 400
ACKNOWLEDGED_AT_ONCE = 8
"""Messages in one batch of those that only pass. Few where each is acknowledged: a store may read its whole queue
then."""
STAYING_MAX = 4 * EXPIRING_AT_ONCE
"""Messages past their deadline that a fetch returns all the same, from which on nothing is said to go by."""
PASSING_MS = 1000
"""How long they live if they are to expire."""


def pass_by(run: Run, step: Churn) -> tuple[Result, int]:
    """Save and have acknowledged, or expire; the result of the last save, and the ms that passed meanwhile.

    The account knows of them only where the counter is afterwards.
    """
    state, store, name = run.state, run.store, run.clients[step.client]
    account = state.accounts[step.client]
    number, last = state.batches[step.producer].number, max(account.last_ids)
    token = account.last_token
    left, passed_ms = step.count, 0
    limit, most = store.capabilities.modulus, EXPIRING_AT_ONCE if step.by_expiry else ACKNOWLEDGED_AT_ONCE
    result: Result = Saved()
    while left > 0 and isinstance(result, Saved) and result.refused is None:
        size = min(left, store.largest_batch, most)
        number, left = number + size, left - size
        result = store.perform("save", name, _fields(run, step, number, size, passed_ms, limit))
        if isinstance(result, Failed) and limit == store.capabilities.modulus:  # a store that takes no limit so high
            limit = min(store.limit, limit - 1)
            most = min(most, max(limit - len(account.queue), 1))
            number, left, result = number - size, left + size, Saved()
            continue
        passing = _sendings(run, step, result, size)
        if passing:
            last, token = passing[-1].packet_id, max(token, passing[-1].sequence or 0)
        if step.by_expiry:
            store.advance(PASSING_MS + 1)
            passed_ms += PASSING_MS + 1
            listed = store.perform("fetch", name, {"count": EVERYTHING, "after": 0})
            if isinstance(listed, Fetched) and len(listed.messages) > len(account.queue) + STAYING_MAX:
                result = Failed(b"messages that have expired stay: identifiers do not go by")
        elif "acknowledge" in store.operations:
            answers = [one._replace(epoch=account.session.epoch, sequence=one.sequence or 0) for one in passing]
            store.acknowledge_all(name, [one._asdict() for one in answers])
    account = account._replace(last_ids=frozenset({last}), last_token=token)
    run.state = state._replace(
        batches=replaced(state.batches, step.producer, Batch(number)),
        accounts=replaced(state.accounts, step.client, account),
    )
    return result, passed_ms


def _fields(run: Run, step: Churn, number: int, size: int, passed_ms: int, limit: int) -> dict[str, object]:
    session = run.state.accounts[step.client].session
    interval_ms = PASSING_MS if step.by_expiry else None
    return {
        "epoch": session.epoch,
        "limit": limit,
        "default_expiry_ms": run.store.default_expiry_ms,
        "producer": run.producers[step.producer],
        "batch": number,
        "messages": tuple(
            Message(PASSING_MARK + b"g %d" % (number - one), b"t", 1, interval_ms, session.now_ms + passed_ms)
            for one in range(size)
        ),
    }


def _sendings(run: Run, step: Churn, result: Result, size: int) -> list[Sending]:
    """Under what they were saved: by the reply, or by what a fetch returns behind the messages that stay."""
    if isinstance(result, Saved) and len(result.assigned) == size:
        told = [Sending(one.packet_id, one.sequence) for one in result.assigned if one.packet_id is not None]
        if len(told) == size and (not run.store.capabilities.has_tokens or all(one.sequence for one in told)):
            return told
    listed = run.store.listing(run.clients[step.client])
    staying: Account = run.state.accounts[step.client]
    messages = listed.messages[len(staying.queue) :] if isinstance(listed, Fetched) else ()
    return [Sending(one.packet_id, one.sequence) for one in messages if one.packet_id is not None]
