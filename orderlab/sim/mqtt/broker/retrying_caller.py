"""Calls on the store that a broker makes again until they get through, after pauses that grow.

Each pause is twice the last one, up to a longest: so does Lettuce wait between attempts to reconnect (exponential by powers of two, up
to 30 s). The first and the longest pause here are ours: short against the faults of a simulation, long against a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from orderlab.sim.engine.clock import call_at
from orderlab.sim.mqtt.broker.persistence import Call

if TYPE_CHECKING:
    from orderlab.sim.mqtt.broker.broker import MqttBroker

FIRST_PAUSE_US = 10_000
LONGEST_PAUSE_US = 1_000_000
T = TypeVar("T")


def _nothing() -> None:
    """Nobody minds."""


class RepeatedCalls:
    """Those of one broker. ``waiting``: calls that pause now and may still get through."""

    def __init__(self, broker: MqttBroker) -> None:
        self.broker = broker
        self.waiting = 0

    def make(
        self,
        subscriber: int,
        call: Call,
        read: Callable[[Any], T | None],
        then: Callable[[T], None],
        still_matters: Callable[[], bool],
        failures: str,
        otherwise: Callable[[], None] = _nothing,
    ) -> None:
        """Call until ``read`` makes something of the reply, and hand that to ``then``; ``otherwise`` when the call does not matter
        any more. ``failures``: the counter of replies that say nothing."""
        broker, fabric = self.broker, self.broker.fabric
        node, pause_us, may_get_through = fabric.node_of[subscriber], FIRST_PAUSE_US, False

        def replied(replies: Sequence[Any]) -> None:
            nonlocal pause_us, may_get_through
            if broker.is_dead or not still_matters():
                otherwise()
                return
            found = read(replies[0])
            if found is not None:
                then(found)
                return
            fabric.count(failures)
            may_get_through = not fabric.store.is_damaged(replies[0])
            self.waiting += may_get_through
            call_at(broker.env, broker.env.now + pause_us, again)
            pause_us = min(2 * pause_us, LONGEST_PAUSE_US)

        def again() -> None:
            self.waiting -= may_get_through
            if broker.is_dead or not still_matters():
                otherwise()
            else:
                broker.driver.submit([(node, call)], replied)

        broker.driver.submit([(node, call)], replied)
