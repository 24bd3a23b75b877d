"""MQTT clients (paho-mqtt) that play against a broker through the recording proxy, each in a thread of its own."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from orderlab.sim.recording.transcript import payload_of

RETRY_S, LOOP_S = 0.02, 0.005
KEPT_S = 3600
"""The Session Expiry Interval of sessions that are to last."""


@dataclass(frozen=True)
class Role:
    """What a client does: its subscriptions (filter and QoS), and how it connects."""

    name: str
    subscriptions: tuple[tuple[str, int], ...] = ()
    keeps_session: bool = True
    receive_maximum: int | None = None
    will_topic: str = ""


class Player:
    """A client that connects, and connects again whenever its connection ends, until it is asked to stop."""

    def __init__(self, role: Role, port: int, is_5: bool) -> None:
        self.role, self._port, self._is_5 = role, port, is_5
        self._numbers: dict[tuple[str, int], int] = {}
        self._waiting: queue.SimpleQueue[tuple[str, int, bool, int | None]] = queue.SimpleQueue()
        self._unanswered: set[int] = set()
        self._connections = 0
        self.heard = 0
        """Messages that came."""
        self._wanted = threading.Event()
        self._stopped = False
        self.is_ready = threading.Event()
        """Connected, and subscribed."""
        self._client = self._new_client()
        self._thread: threading.Thread | None = None
        self.come()

    def come(self) -> None:
        """Connect, and stay connected."""
        if self._thread is None:
            self._wanted.set()
            self._thread = threading.Thread(target=self._stay, args=(self._client,), daemon=True)
            self._thread.start()

    def go(self) -> None:
        """Say goodbye, and stay away until `come`."""
        thread, self._thread = self._thread, None
        self._wanted.clear()
        if thread is not None:
            thread.join()
        self.is_ready.clear()

    def take_over(self) -> None:
        """Connect as another client of the same identifier, while the first is still connected."""
        old = self._thread
        self._wanted.clear()
        self._wanted = threading.Event()
        self._client, self._thread = self._new_client(), None
        self.is_ready.clear()
        self.come()
        if old is not None:
            old.join()

    def publish(self, topic: str, qos: int, retain: bool = False, expiry_s: int | None = None) -> None:
        """Have the next message published, once the client is connected and has sent again what it owes."""
        self._waiting.put((topic, qos, retain, expiry_s))

    @property
    def is_done(self) -> bool:
        """Whether nothing waits to be published or acknowledged."""
        return self._waiting.empty() and not self._unanswered

    def _new_client(self) -> Client:
        version = MQTTProtocolVersion.MQTTv5 if self._is_5 else MQTTProtocolVersion.MQTTv311
        is_clean = None if self._is_5 else not self.role.keeps_session
        client = Client(CallbackAPIVersion.VERSION2, self.role.name, is_clean, None, version)
        client.on_connect = self._on_connect
        client.on_subscribe = lambda who, *_: self._mark(who, True)
        client.on_publish = lambda _, __, number, *___: self._unanswered.discard(number)
        client.on_message = self._on_message
        client.on_disconnect = lambda who, *_: self._mark(who, False)
        return client

    def _stay(self, client: Client) -> None:
        """All that a client does, it does here: paho sends what is published before its CONNACK ahead of what it sends
        again (`notes/findings/paho-mqtt.md`), and this is about brokers."""
        wanted = self._wanted
        while wanted.is_set():
            with contextlib.suppress(OSError, ValueError):
                self._connect(client)
                while client.loop(LOOP_S) == MQTTErrorCode.MQTT_ERR_SUCCESS:
                    if not wanted.is_set() and client is self._client:
                        client.disconnect()
                    elif self.is_ready.is_set():
                        self._publish_waiting(client)
            time.sleep(RETRY_S)

    def _publish_waiting(self, client: Client) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                topic, qos, retain, expiry_s = self._waiting.get_nowait()
                number = self._numbers[topic, qos] = self._numbers.get((topic, qos), 0) + 1
                properties = None
                if expiry_s is not None and self._is_5:
                    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
                    properties.MessageExpiryInterval = expiry_s
                sent = client.publish(topic, payload_of(self.role.name, qos, number), qos, retain, properties)
                if qos:
                    self._unanswered.add(sent.mid)

    def _connect(self, client: Client) -> None:
        self._connections += 1
        if self.role.will_topic:
            client.will_set(
                self.role.will_topic, payload_of(self.role.name, 1, self._connections, self._connections), 1
            )
        given: dict[str, Any] = {}
        if self._is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = KEPT_S if self.role.keeps_session else 0
            if self.role.receive_maximum is not None:
                properties.ReceiveMaximum = self.role.receive_maximum
            given = {"clean_start": not self.role.keeps_session, "properties": properties}
        client.connect("127.0.0.1", self._port, keepalive=60, **given)

    def _on_connect(self, client: Client, _: Any, flags: Any, reason: Any, __: Any) -> None:
        if reason.is_failure:
            return
        if self.role.subscriptions and not flags.session_present:
            client.subscribe(list(self.role.subscriptions))
        else:
            self._mark(client, True)

    def _on_message(self, *_: Any) -> None:
        self.heard += 1

    def _mark(self, client: Client, is_ready: bool) -> None:
        if client is self._client:  # and not what was taken over
            (self.is_ready.set if is_ready else self.is_ready.clear)()
