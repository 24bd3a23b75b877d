"""CONNECT and what it is told: session present, the epoch of the session; what comes late or twice."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.model.contracts.session.refinement import (
    Account,
    Judgement,
    ObservedMessage,
    judge_open,
    judge_open_again,
    judge_stale_clear,
    judge_stale_open,
)
from orderlab.model.contracts.session.refinement.account import Connection, Cursor
from orderlab.model.contracts.session.refinement.connects import judge_answer, judge_ending
from orderlab.model.contracts.session.traces import Clear, Open
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
