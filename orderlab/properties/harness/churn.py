"""Identifiers go by: many messages are saved and go again, without a judgement of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.trace import Pass
from orderlab.properties.harness.listing import replaced
from orderlab.properties.harness.state import EVERYTHING, Batch, Sending
from orderlab.sim.stores.binding.results import Failed, Fetched, Message, Result, Saved

if TYPE_CHECKING:
    from orderlab.properties.harness.run import SessionRun

PASSING_MARK = b"passin"
"""Begins the payload of each: six bytes, so that it begins the base64 of the payload as well."""
EXPIRING_AT_ONCE = 400
ACKNOWLEDGED_AT_ONCE = 8
"""Messages in one batch of those that only pass. Few where each is acknowledged: a store may read its whole queue then."""
STAYING_MAX = 4 * EXPIRING_AT_ONCE
"""Messages past their deadline that a fetch returns all the same, from which on nothing is said to go by."""
PASSING_MS = 1000
"""How long they live if they are to expire."""


def pass_by(run: SessionRun, step: Pass) -> tuple[Result, int]:
    """Save and have acknowledged, or expire; the result of the last save, and the ms that passed meanwhile.

    The account knows of them only where the counter is afterwards.
    """
    state, store, name = run.state, run.store, run.clients[step.client]
    account = state.accounts[step.client]
    number, last = state.batches[step.producer].number, max(account.last_ids)
    token = account.last_token
    left, passed_ms = step.count, 0
    limit, most = store.terms.modulus, EXPIRING_AT_ONCE if step.by_expiry else ACKNOWLEDGED_AT_ONCE
    result: Result = Saved()
    while left > 0 and isinstance(result, Saved) and result.refused is None:
        size = min(left, store.largest_batch, most)
        number, left = number + size, left - size
        result = store.perform("save", name, _fields(run, step, number, size, passed_ms, limit))
        if isinstance(result, Failed) and limit == store.terms.modulus:  # a store that takes no limit so high
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


def _fields(run: SessionRun, step: Pass, number: int, size: int, passed_ms: int, limit: int) -> dict[str, object]:
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


def _sendings(run: SessionRun, step: Pass, result: Result, size: int) -> list[Sending]:
    """Under what they were saved: by the reply, or by what a fetch returns behind the messages that stay."""
    if isinstance(result, Saved) and len(result.assigned) == size:
        told = [Sending(one.packet_id, one.sequence) for one in result.assigned if one.packet_id is not None]
        if len(told) == size and (not run.store.terms.has_tokens or all(one.sequence for one in told)):
            return told
    listed = run.store.listing(run.clients[step.client])
    staying: Account = run.state.accounts[step.client]
    messages = listed.messages[len(staying.queue) :] if isinstance(listed, Fetched) else ()
    return [Sending(one.packet_id, one.sequence) for one in messages if one.packet_id is not None]
