"""Saves: a producer's next batch, its last one once more, and the one before that when it goes back further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orderlab.model.contracts.session.refinement import Account, Judgement, Seen, judge_save
from orderlab.model.contracts.session.refinement.saves import Save as Saving
from orderlab.model.contracts.trace import Repeat, Save
from orderlab.properties.harness.listing import assigned_to, incoming, outgoing, replaced
from orderlab.properties.harness.state import Batch, Sending
from orderlab.sim.stores.binding.results import Assigned, Result, Saved

if TYPE_CHECKING:
    from orderlab.properties.harness.run import SessionRun, StepReport


def save_next(run: SessionRun, step: Save, report: StepReport) -> None:
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


def save_again(run: SessionRun, step: Repeat, report: StepReport) -> None:
    """The producer's last batch once more. ``older``: the one that was done before it, of a store that has a word for it."""
    last = run.state.batches[step.producer]
    batch = last.earlier if step.older else last
    if batch is None or batch.step is None:
        return
    if step.older and (run.store.terms.older_word is None or not _is_after(last, batch.step)):
        return
    save = replace(batch.step, fault=None)
    after, result = _carry_out(run, batch, save, report)
    if not step.older:
        run.state = run.state._replace(batches=replaced(run.state.batches, step.producer, after))
        if not batch.was_done:
            _note_assigned(run, result, save)
    _judge(run, batch, save, report, step.older)


def _is_after(last: Batch, earlier: Save) -> bool:
    """Whether the producer's last batch went the way of an earlier one, so that the session can know it is the last. One without
    messages is no call to a store that takes them one by one."""
    step = last.step
    return last.was_done and step is not None and bool(step.messages) and step.client == earlier.client


def _carry_out(run: SessionRun, batch: Batch, step: Save, report: StepReport) -> tuple[Batch, Result]:
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
    told = batch.told or (reply.told or () if store.terms.tells_each else ())
    return batch._replace(step=step, was_done=batch.was_done or reply.status == "done", told=told), result


def _judge(run: SessionRun, batch: Batch, step: Save, report: StepReport, is_older: bool = False) -> None:
    """``batch``: as it was known before it came."""
    store = run.store
    reply = run.reply_of(report.result, step.messages)
    run.told = {label: packet_id for label, packet_id, _ in reply.assigned if packet_id is not None}
    saving = Saving(
        tuple(incoming(one, store.default_expiry_ms) for one in step.messages),
        step.limit,
        batch.epoch <= run.state.connections[step.client].cleared_epoch,
        batch.was_done,
        is_older,
        batch.told,
        run.is_overtaken,
    )

    def judge(account: Account, listing: Sequence[Seen]) -> Judgement:
        return judge_save(account, saving, reply, listing, store.terms, step.fault is not None)

    run.judge(report, step.client, judge)
    run.told = {}


def _in_parts(run: SessionRun, step: Save, fields: dict[str, object]) -> Result:
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


def _note_assigned(run: SessionRun, result: Result, step: Save) -> None:
    """What a broker can send at once: the reply to the save told under which identifier."""
    if not isinstance(result, Saved):
        return
    epoch = run.state.accounts[step.client].session.epoch
    told = {
        label: Sending(packet_id, sequence, epoch)
        for label, packet_id, sequence in assigned_to(result, step.messages)
        if packet_id is not None and (sequence is not None or not run.store.terms.has_tokens)
    }
    if told:
        run.state = run.state._replace(sendings=tuple(sorted({**dict(run.state.sendings), **told}.items())))
