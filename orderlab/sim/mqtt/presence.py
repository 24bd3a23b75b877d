"""Connections of subscribers begin and end: what the history is told of it, which broker knows it, and who else hears.

A broker may not know that a connection has ended: it learns that from a CONNECT elsewhere, or by Keep Alive, and reads
what comes over the old connection until then (``unnoticed``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from orderlab.model.history.events import EventKind
from orderlab.sim.engine.clock import call_at
from orderlab.sim.engine.recorder import HistoryRecorder
from orderlab.sim.mqtt.brokers import Brokers
from orderlab.sim.mqtt.clients import Ints
from orderlab.sim.mqtt.parts import DeliveryState, Measurements, Traffic


class Presence:
    """Who is connected where. All brokers of a system have one."""

    def __init__(
        self,
        recorder: HistoryRecorder,
        measured: Measurements,
        traffic: Traffic,
        state: DeliveryState,
        brokers: Brokers,
        introduced: Ints | None,
    ) -> None:
        """``introduced``: per subscriber, 1 if the history knows it; None: the history knows all from its beginning."""
        self.clock = measured.clock
        self.recorder = recorder
        self.measured = measured
        self.traffic = traffic
        self.broker_of = traffic.subscribers.broker
        """Per subscriber, the broker where it is connected, or was last."""
        self.table = state.connections
        self.windows = state.windows
        self.brokers = brokers
        self.introduced = introduced
        self.on_disconnect: list[Callable[[int], None]] = [state.forget, traffic.slow_readers.forget]
        """Hear of every subscriber that loses its connection."""
        if traffic.sockets is not None:
            self.on_disconnect.append(traffic.sockets.forget)
        self.on_notice: list[Callable[[int, int, int], None]] = []
        """Hear of subscriber, broker and number of every connection that its broker knows to have ended."""
        self.on_session_end: list[Callable[[int], None]] = []
        """Hear of every subscriber whose session ends."""
        self.unnoticed: dict[tuple[int, int], int] = {}
        """(subscriber, number) of connections that have ended, whose brokers do not know it yet → broker."""
        self.goodbyes: set[tuple[int, int]] = set()
        """(subscriber, number) of connections that ended with Reason Code 0, where there are Wills to discard."""
        self.admit: Callable[[int, int, bool], bool] | None = None
        """Asked before a subscriber connects at a broker, with Clean Start 1 or not: whether it may now, or will be let
        in later."""

    def introduce(self, subscribers: Ints, at_us: Ints) -> None:
        """Those whom the history does not know are connected, and subscribed to the topic of their own number."""
        if self.introduced is None:
            return
        is_new = self.introduced[subscribers] == 0
        self.introduced[subscribers] = 1
        new, since_us = subscribers[is_new], at_us[is_new]
        code = new + self.traffic.schedule.count
        self.recorder.add(EventKind.CONNECT, since_us, subscriber=code, **self.connect_columns(new))
        self.recorder.add(
            EventKind.SUBSCRIBE, since_us, subscriber=code, topic=new, qos=self.traffic.qos.granted_to(new)
        )

    def connect_columns(self, subscribers: Ints) -> dict[str, Any]:
        """What the history says of the CONNECTs of these, beside who and when."""
        wills, columns = self.traffic.wills, self.windows.columns
        if wills is None or not wills.count:
            return columns
        return {**columns, **wills.columns(subscribers, self.table.connection_number[subscribers])}

    def connect(self, subscriber: int, broker: int) -> None:
        """A subscriber has a connection to a broker from now on."""
        self.broker_of[subscriber] = broker
        self.table.connected[subscriber] = True
        if self.brokers.ownership is not None:
            self.brokers.ownership.connected(subscriber, broker)

    def is_at(self, broker: int, subscriber: int) -> bool:
        """Whether a subscriber is connected to a broker."""
        return bool(self.table.connected[subscriber] and self.broker_of[subscriber] == broker)

    def connect_anew(self, subscriber: int, at_us: int) -> None:
        """Let the client connect anew, to the next broker, whether or not its old one knows of the end."""
        table, connection = self.table, int(self.table.connection_number[subscriber])

        def back() -> None:
            number = int(table.connection_number[subscriber])
            if number == connection and table.connected[subscriber]:
                self.measured.count("takeovers_of_dead_connections")
                self.disconnect(subscriber, is_noticed=False)
            elif number != connection + 1 or table.connected[subscriber]:
                return  # it has been elsewhere since
            self.brokers.next_after(int(self.broker_of[subscriber])).connect(subscriber)

        call_at(self.clock, at_us, back)

    def disconnect(self, subscriber: int, is_noticed: bool = True, says_goodbye: bool = False) -> None:
        """A subscriber loses its connection now. The history must know that it had one. ``is_noticed``: so does its
        broker; otherwise it hears of it with a CONNECT elsewhere, or by ``notice``. ``says_goodbye``: it sends
        DISCONNECT with Reason Code 0, which discards its Will."""
        now = int(self.clock.now)
        broker, connection = (
            int(self.broker_of[subscriber]),
            int(self.table.connection_number[subscriber]),
        )
        self.introduce(np.array([subscriber]), np.array([now]))
        self.table.disconnect(subscriber, now)
        for function in self.on_disconnect:
            function(subscriber)
        code = np.array([subscriber + self.traffic.schedule.count])
        wills = self.traffic.wills
        if says_goodbye and wills is not None and wills.count:
            self.recorder.add(EventKind.DISCONNECT, np.array([now]), subscriber=code, reason_code=0)
            self.goodbyes.add((subscriber, connection))
        else:
            self.recorder.add(EventKind.DISCONNECT, np.array([now]), subscriber=code)
        if is_noticed or self.brokers.ownership is None:
            self._tell(subscriber, broker, connection)
        else:
            self.unnoticed[subscriber, connection] = broker

    def notice(self, subscriber: int, connection: int, here: int | None = None) -> None:
        """The broker that had a connection knows now that it has ended, if it did not know; ``here``: if it is that
        broker."""
        broker = self.unnoticed.get((subscriber, connection))
        if broker is not None and here in (None, broker):
            del self.unnoticed[subscriber, connection]
            self._tell(subscriber, broker, connection)

    def are_unnoticed(self, broker: int, subscribers: Ints, connections: Ints) -> npt.NDArray[np.bool_]:
        """Of these connections that have ended, those that a broker still reads."""
        pairs = zip(subscribers.tolist(), connections.tolist(), strict=True)
        return np.array([self.unnoticed.get(pair) == broker for pair in pairs], np.bool_)

    def _tell(self, subscriber: int, broker: int, connection: int) -> None:
        for function in self.on_notice:
            function(subscriber, broker, connection)
