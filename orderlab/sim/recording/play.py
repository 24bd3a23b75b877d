"""What clients play against a broker while it is recorded: publishers, subscribers of every kind, and what goes wrong.

The choices follow from the seed; when packets come, and so the history, does not.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from orderlab.model.errors import InputError
from orderlab.model.protocol.packet_id import TWO_BYTES_MAX
from orderlab.sim.recording.broker_process import BrokerProcess
from orderlab.sim.recording.players import Player, Role
from orderlab.sim.recording.proxy import Damage, Proxy
from orderlab.sim.recording.transcript import Recording

READY_S, QUIET_S, DRAIN_S = 10.0, 0.6, 20.0
TOPICS = ("play/a", "play/b")
LEAD_TOPIC, LEAD, LEAD_OPEN = "lead", TWO_BYTES_MAX - 100, 50
"""What goes before a play in which identifiers wrap: its topic, how many messages, how many of them at once."""
SUBSCRIBERS = (
    Role("keeps-all", (("play/#", 2), ("will/#", 1))),
    Role("keeps-few", (("play/a", 1),), receive_maximum=2),
    Role("clean", (("play/+", 1),), keeps_session=False),
    Role("at-most-once", (("play/b", 0),)),
    Role("member-1", (("$share/members/play/a", 1),)),
    Role("member-2", (("$share/members/play/a", 1),)),
)


@dataclass(frozen=True)
class Play:
    """How much is played: messages of each publisher, and what goes wrong."""

    messages: int = 200
    publishers: int = 2
    seed: int = 0
    is_5: bool = True
    kills: int = 0
    """Of the broker, spread over the run; without Wills then, whose fate after a crash MQTT leaves open."""
    damage: Damage = field(default_factory=Damage)
    pause_s: float = 0.001
    """Between messages."""
    wraps: bool = False
    """Whether so many messages go before it that packet identifiers wrap on the way: those of the first publisher, and
    of the broker to `keeps-all`."""


class Stage:
    """One run of a play: who is on, and when what happens."""

    def __init__(self, play: Play, proxy: Proxy, broker: BrokerProcess | None) -> None:
        self._play, self._proxy, self._broker = play, proxy, broker
        roles = {role.name: role for role in SUBSCRIBERS}
        if play.wraps:
            whole = roles["keeps-all"]
            roles[whole.name] = replace(whole, subscriptions=(*whole.subscriptions, (LEAD_TOPIC, 1)))
        self._subscribers = {name: Player(role, proxy.port, play.is_5) for name, role in roles.items()}
        names = [f"publisher-{number}" for number in range(1, play.publishers + 1)]
        self._publishers = [Player(Role(name), proxy.port, play.is_5) for name in names]
        if not play.kills:
            role = Role("testator", keeps_session=False, will_topic="will/testator")
            self._subscribers[role.name] = Player(role, proxy.port, play.is_5)

    @property
    def _players(self) -> list[Player]:
        return [*self._subscribers.values(), *self._publishers]

    def run(self) -> None:
        """Play it to its end. Raises InputError where the broker lets nobody in."""
        try:
            self._await_all("take all clients in")
            if self._play.wraps:
                self._lead()
            self._proxy.is_damaging = True
            self._publish_all()
            self._await_published()
            self._proxy.is_damaging = False
            self._subscribers["keeps-all"].come()
            self._await_all("take all clients in again")
            if self._has_damage:
                self._proxy.write("heal")
            self._proxy.write("end" if self._is_quiet() else "cut")
        finally:
            for player in self._players:
                player.go()

    @property
    def _has_damage(self) -> bool:
        damage = self._play.damage
        return bool(self._play.kills or damage.cut or damage.drop or damage.cut_at)

    def _lead(self) -> None:
        """Never more at once than any broker queues. Raises InputError where the broker stops."""
        publisher, subscriber = self._publishers[0], self._subscribers["keeps-all"]
        before = subscriber.heard
        for number in range(LEAD):
            publisher.publish(LEAD_TOPIC, 1)
            deadline = time.monotonic() + READY_S
            while number - (subscriber.heard - before) >= LEAD_OPEN:
                if time.monotonic() > deadline:
                    raise InputError(f"--wrap: the broker delivers nothing more after {number:,} of {LEAD:,} messages")
                time.sleep(0.001)

    def _publish_all(self) -> None:
        play, acts = self._play, self._acts()
        for number in range(play.messages):
            for act in acts.pop(number, ()):
                act()
            for player in self._publishers:
                qos, topic = number % 3, TOPICS[number // 3 % 2]
                player.publish(topic, qos, number % 50 == 49, 60 if number % 7 == 6 else None)
            time.sleep(play.pause_s)

    def _await_published(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        while time.monotonic() < deadline and not all(player.is_done for player in self._publishers):
            time.sleep(0.02)

    def _acts(self) -> dict[int, list[Callable[[], None]]]:
        """By the number of the message before which each is done."""
        acts: dict[int, list[Callable[[], None]]] = {}
        few, all_of_it = self._subscribers["keeps-few"], self._subscribers["keeps-all"]
        script: list[tuple[float, Callable[[], None]]] = [
            (0.2, all_of_it.go),
            (0.4, all_of_it.come),
            (0.5, few.take_over),
            (0.6, lambda: self._proxy.cut("clean")),
            (0.85, all_of_it.go),
        ]
        if "testator" in self._subscribers:
            script += [(0.3, lambda: self._proxy.cut("testator")), (0.7, self._subscribers["testator"].go)]
        for kill in range(self._play.kills):
            script.append(((kill + 0.65) / (self._play.kills + 0.5), self._kill))
        for share, act in script:
            acts.setdefault(int(min(share, 0.95) * self._play.messages), []).append(act)
        return acts

    def _kill(self) -> None:
        assert self._broker is not None
        self._proxy.write("fault", operation="broker-killed", node="broker")
        self._proxy.hold()
        time.sleep(0.1)  # what was passed on before has been read
        self._broker.kill()
        self._proxy.cut()
        self._proxy.resume()
        self._broker.start()

    def _await_all(self, what: str) -> None:
        deadline = time.monotonic() + READY_S
        for player in self._players:
            is_away = player.role.name == "testator" and self._proxy.packets > 100
            if not is_away and not player.is_ready.wait(max(0.0, deadline - time.monotonic())):
                raise InputError(
                    f"{player.role.name}: the broker did not {what} within {READY_S:g} s; let it take anonymous "
                    f"clients of MQTT {'5.0' if self._play.is_5 else '3.1.1'} (--protocol)"
                )

    def _is_quiet(self) -> bool:
        """Wait until no packet passes any more; whether that came about."""
        deadline, seen, since = time.monotonic() + DRAIN_S, -1, 0.0
        while time.monotonic() < deadline:
            now = time.monotonic()
            if self._proxy.packets != seen:
                seen, since = self._proxy.packets, now
            elif now - since >= QUIET_S:
                return True
            time.sleep(0.05)
        return False


def record(play: Play, transcript: Recording, address: tuple[str, int] | None, start: str | None) -> None:
    """Play against the broker at ``address``, or one that is started, and write what happens into ``transcript``.

    Raises InputError.
    """
    broker = BrokerProcess(start) if start is not None else None
    try:
        host, port = (broker.host, broker.port) if broker is not None else address or ("", 0)
        try:
            socket.create_connection((host, port), timeout=2).close()
        except OSError as error:
            raise InputError(f"{host}:{port}: no broker there ({error.strerror or error}); start one") from None
        with Proxy(host, port, transcript, play.damage, play.seed) as proxy:
            Stage(play, proxy, broker).run()
            if proxy.failure is not None:
                raise proxy.failure
    finally:
        if broker is not None:
            broker.stop()
