"""CONNECT and what it is told: session present, the epoch of the session; what comes late or twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orderlab.model.contracts.session.refinement import (
    Account,
    Discrepancy,
    Judgement,
    Reply,
    Seen,
    Store,
    judge_open_again,
    judge_stale_clear,
    judge_stale_open,
)
from orderlab.model.contracts.trace import Clear, Open
from orderlab.properties.harness.state import Connection
from orderlab.sim.stores.binding.results import Opened, Result

if TYPE_CHECKING:
    from orderlab.properties.harness.run import SessionRun

Judge = Callable[[Account, Sequence[Seen]], Judgement]


def judge_answer(
    result: Opened, account: Account, connection: Connection, epoch: int, clean: bool, terms: Store
) -> list[Discrepancy]:
    """The reply to a CONNECT that was carried out. ``account`` and ``connection`` are those before it."""
    return _judge_presence(result, account, connection, clean, terms) + _judge_epoch(
        result, account, connection, epoch, clean
    )


def _judge_presence(
    result: Opened, account: Account, connection: Connection, clean: bool, terms: Store
) -> list[Discrepancy]:
    """What the reply says of the session that waited (MQTT-3.2.2-2, -3)."""
    none_waits = clean or not connection.is_open
    if result.session_present is None and terms.tells_presence:
        law = "no-residue" if none_waits else "no-loss"
        return [Discrepancy(law, "open does not tell whether a session waited", False)]
    if result.session_present and none_waits:
        return [Discrepancy("no-residue", "open tells of a session that was cleared", False)]
    if result.session_present is False and not clean and account.queue:
        return [Discrepancy("no-loss", "open tells of no session although messages wait", False)]
    return []


def _judge_epoch(
    result: Opened, account: Account, connection: Connection, epoch: int, clean: bool
) -> list[Discrepancy]:
    """A new session is that of its CONNECT; one that goes on may keep the epoch that it began with."""
    goes_on = not clean and connection.is_open
    if result.epoch in (None, epoch) or (goes_on and result.epoch == account.session.epoch):
        return []
    text = f"CONNECT {epoch} is told that its session is that of {result.epoch}: what comes for it is another's"
    return [Discrepancy("no-phantom", text)]


def come_late(run: SessionRun, step: Open) -> tuple[Result | None, Judge | None]:
    """Carry out a CONNECT that was overtaken, or that comes again; how to judge it. Nothing of the session may change.

    A store that cannot tell CONNECTs apart, or has no word to refuse one, is not asked.
    """
    connection = run.state.connections[step.client]
    epoch = connection.connects if step.again else connection.begun - 1
    first = connection.answer if step.again else (step.clean_start, None, None)
    if not run.store.terms.tells_connects or not connection.is_open or first is None or epoch < 1:
        return None, None
    result = run.call(None, "open", step.client, {"epoch": epoch, "clean_start": int(first[0])})
    reply = run.reply_of(result)
    answer = (result.session_present, result.epoch) if isinstance(result, Opened) else None

    def judge(account: Account, listing: Sequence[Seen]) -> Judgement:
        if step.again:
            return judge_open_again(account, reply, answer == first[1:], listing)
        return judge_stale_open(account, reply, listing)

    return result, judge


def judge_ending(reply: Reply, connection: Connection, terms: Store) -> list[Discrepancy]:
    """The reply to the end of a session, where the binding promises that it tells whether there was one.

    ``connection`` is that before it.
    """
    if "clear" not in terms.tells_found or reply.removed == int(connection.is_open):
        return []
    if connection.is_open:
        return [Discrepancy("no-loss", "clear does not tell of the session that there was", False)]
    return [Discrepancy("no-residue", "clear does not tell that the session was cleared before", False)]


def end_late(run: SessionRun, step: Clear) -> tuple[Result | None, Judge | None]:
    """Carry out the end of an earlier session once the next one has begun: that one stays as it is.

    A store whose clear does not know of sessions, or has no word for having ended none, is not asked.
    """
    connection, epoch = run.state.connections[step.client], run.state.connections[step.client].cleared_epoch
    begun = run.state.accounts[step.client].session.epoch
    if not run.store.terms.tells_ends or not connection.is_open or not 0 < epoch < begun:
        return None, None
    result = run.call(step.fault, "clear", step.client, {"epoch": epoch})
    reply = run.reply_of(result)
    return result, lambda account, listing: judge_stale_clear(account, reply, listing, run.store.terms)
