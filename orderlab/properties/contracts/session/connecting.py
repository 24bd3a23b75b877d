"""CONNECT and what it is told: session present, the epoch of the session; what comes late or twice."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.contracts.contract import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.refinement import (
    Account,
    Judgement,
    ObservedMessage,
    Reply,
    judge_open,
    judge_open_again,
    judge_stale_clear,
    judge_stale_open,
)
from orderlab.model.contracts.session.refinement.account import Connection, Cursor
from orderlab.model.contracts.session.steps import Clear, Open
from orderlab.properties.contracts.session.run import Judge, Run, StepReport, replaced
from orderlab.sim.stores.binding.results import Opened, Result


def begin(run: Run, step: Clear | Open, report: StepReport) -> None:
    """CONNECT, or the end of a session. A store without ``open`` is told of a clean start by clear alone."""
    if not step.is_new:
        report.result, judge_late = end_late(run, step) if isinstance(step, Clear) else come_late(run, step)
        if judge_late is not None:
            run.judge(report, step.client, judge_late)
        return
    operation = "open" if isinstance(step, Open) else "clear"
    if operation not in run.store.operations:
        return
    connection = run.state.connections[step.client]
    account = run.state.accounts[step.client]
    ends = operation == "clear" and "open" in run.store.operations
    epoch = account.session.epoch if ends else connection.connects + 1
    clean = not isinstance(step, Open) or step.clean_start
    fields: dict[str, object] = {"epoch": epoch}
    if isinstance(step, Open):
        fields["clean_start"] = int(clean)
    fault = step.fault
    result = run.call(fault, operation, step.client, fields)
    report.result = result
    reply = run.reply_of(result)
    is_done = reply.status == "done"
    may_fail = fault is not None or run.is_overtaken
    answer = None
    if isinstance(result, Opened) and is_done:
        report.discrepancies += judge_answer(result, account, connection, epoch, clean, run.store.capabilities)
        epoch = epoch if result.epoch is None else result.epoch
        answer = clean, result.session_present, result.epoch
    if ends and is_done:
        report.discrepancies += judge_ending(reply, connection, run.store.capabilities)
    if is_done:
        cleared = max(account.session.epoch if clean else 0, connection.cleared_epoch)
        goes_on = ends or (connection.is_open and not clean)
        begun = connection.begun if goes_on else connection.connects + 1
        run.state = run.state._replace(
            connections=replaced(
                run.state.connections,
                step.client,
                Connection(connection.connects + (not ends), not ends, cleared, begun, answer),
            ),
            cursors=replaced(run.state.cursors, step.client, Cursor()) if clean else run.state.cursors,
        )

    def judge(account: Account, listing: Sequence[ObservedMessage]) -> Judgement:
        return judge_open(account, epoch, clean, reply, listing, may_fail)

    run.judge(report, step.client, judge)


def judge_answer(
    result: Opened, account: Account, connection: Connection, epoch: int, clean: bool, capabilities: Capabilities
) -> list[Discrepancy]:
    """The reply to a CONNECT that was carried out. ``account`` and ``connection`` are those before it."""
    return _judge_presence(result, account, connection, clean, capabilities) + _judge_epoch(
        result, account, connection, epoch, clean
    )


def _judge_presence(
    result: Opened, account: Account, connection: Connection, clean: bool, capabilities: Capabilities
) -> list[Discrepancy]:
    """What the reply says of the session that waited (MQTT-3.2.2-2, -3)."""
    none_waits = clean or not connection.is_open
    if result.session_present is None and capabilities.tells_presence:
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


def come_late(run: Run, step: Open) -> tuple[Result | None, Judge | None]:
    """Carry out a CONNECT that was overtaken, or that comes again; how to judge it. Nothing of the session may change.

    A store that cannot tell CONNECTs apart, or has no word to refuse one, is not asked.
    """
    connection = run.state.connections[step.client]
    epoch = connection.connects if step.again else connection.begun - 1
    first = connection.answer if step.again else (step.clean_start, None, None)
    if not run.store.capabilities.tells_connects or not connection.is_open or first is None or epoch < 1:
        return None, None
    result = run.call(None, "open", step.client, {"epoch": epoch, "clean_start": int(first[0])})
    reply = run.reply_of(result)
    answer = (result.session_present, result.epoch) if isinstance(result, Opened) else None

    def judge(account: Account, listing: Sequence[ObservedMessage]) -> Judgement:
        if step.again:
            return judge_open_again(account, reply, answer == first[1:], listing)
        return judge_stale_open(account, reply, listing)

    return result, judge


def judge_ending(reply: Reply, connection: Connection, capabilities: Capabilities) -> list[Discrepancy]:
    """The reply to the end of a session, where the binding promises that it tells whether there was one.

    ``connection`` is that before it.
    """
    if "clear" not in capabilities.tells_found or reply.removed == int(connection.is_open):
        return []
    if connection.is_open:
        return [Discrepancy("no-loss", "clear does not tell of the session that there was", False)]
    return [Discrepancy("no-residue", "clear does not tell that the session was cleared before", False)]


def end_late(run: Run, step: Clear) -> tuple[Result | None, Judge | None]:
    """Carry out the end of an earlier session once the next one has begun: that one stays as it is.

    A store whose clear does not know of sessions, or has no word for having ended none, is not asked.
    """
    connection, epoch = run.state.connections[step.client], run.state.connections[step.client].cleared_epoch
    begun = run.state.accounts[step.client].session.epoch
    if not run.store.capabilities.tells_ends or not connection.is_open or not 0 < epoch < begun:
        return None, None
    result = run.call(step.fault, "clear", step.client, {"epoch": epoch})
    reply = run.reply_of(result)
    return result, lambda account, listing: judge_stale_clear(account, reply, listing, run.store.capabilities)
