"""What CONNECT and the end of a session are told, against the session that there was: session present, its epoch."""

from __future__ import annotations

from typing import Protocol

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.refinement.account import Account, Connection, Reply


class ToldOfSession(Protocol):
    """The reply to a CONNECT; None for what it does not tell."""

    @property
    def session_present(self) -> bool | None: ...
    @property
    def epoch(self) -> int | None: ...


def judge_answer(
    result: ToldOfSession, account: Account, connection: Connection, epoch: int, clean: bool, capabilities: Capabilities
) -> list[Discrepancy]:
    """The reply to a CONNECT that was carried out. ``account`` and ``connection`` are those before it."""
    return _judge_presence(result, account, connection, clean, capabilities) + _judge_epoch(
        result, account, connection, epoch, clean
    )


def _judge_presence(
    result: ToldOfSession, account: Account, connection: Connection, clean: bool, capabilities: Capabilities
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
    result: ToldOfSession, account: Account, connection: Connection, epoch: int, clean: bool
) -> list[Discrepancy]:
    """A new session is that of its CONNECT; one that goes on may keep the epoch that it began with."""
    goes_on = not clean and connection.is_open
    if result.epoch in (None, epoch) or (goes_on and result.epoch == account.session.epoch):
        return []
    text = f"CONNECT {epoch} is told that its session is that of {result.epoch}: what comes for it is another's"
    return [Discrepancy("no-phantom", text)]


def judge_ending(reply: Reply, connection: Connection, capabilities: Capabilities) -> list[Discrepancy]:
    """The reply to the end of a session, where the binding promises that it tells whether there was one.

    ``connection`` is that before it.
    """
    if "clear" not in capabilities.tells_found or reply.removed == int(connection.is_open):
        return []
    if connection.is_open:
        return [Discrepancy("no-loss", "clear does not tell of the session that there was", False)]
    return [Discrepancy("no-residue", "clear does not tell that the session was cleared before", False)]
