"""A small MQTT 5 broker, written from the standard, that records a history. With a flaw it breaks one law, and tells
which rows show it.

One queue a session, one pipe in each direction of a connection, whose content goes with it. Rows stand where
`notes/histories.md` says: PUBLISH and PUBREL when they reach the subscriber, PUBREC and the acknowledgements when the
broker has them. Everything that the standard leaves open is drawn at random: copies for overlapping filters, what
happens to a queue at UNSUBSCRIBE, which member of a group gets a message, how long a session lasts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from orderlab.model.checkers.delivery.missing import matches, unshared

TOPICS = ("a", "b/c", "b/d", "$SYS/x")
FILTERS = ("a", "b/c", "b/+", "#", "b/#", "$SYS/x", "$share/g/a", "$share/g/b/+")
CLIENTS = ("s", "t", "u")
PUBLISHERS = ("p", "q")


@dataclass(frozen=True)
class Message:
    publisher: str
    topic: str
    qos: int
    sequence: int
    deadline_us: int | None = None
    is_retained: bool = False

    def columns(self):
        return {"publisher": self.publisher, "topic": self.topic, "qos": self.qos, "sequence": self.sequence}


@dataclass
class Copy:
    """A message on its way to one session. `filters`: the subscriptions that asked for it."""

    message: Message
    level: int
    filters: frozenset[str]
    is_retained: bool = False
    has_begun: bool = False
    number: int = 0
    """The session that it was queued for."""


@dataclass
class Exchange:
    """A PUBLISH in flight. `stage`: publish, or release once the broker has the PUBREC."""

    copy: Copy
    stage: str = "publish"
    sent_in: int = 0
    order: int = 0
    counts: bool = True
    """Towards Receive Maximum: not where its PUBREL is sent again on another connection (4.9)."""


@dataclass
class Session:
    name: str
    number: int = 1
    filters: dict[str, int] = field(default_factory=dict)
    queue: deque[Copy] = field(default_factory=deque)
    inflight: dict[int, Exchange] = field(default_factory=dict)
    resend: deque[int] = field(default_factory=deque)
    identifier: int = 0
    connection: int = 0
    is_online: bool = False
    maximum: int = 65535
    down: deque[tuple] = field(default_factory=deque)
    up: deque[tuple] = field(default_factory=deque)
    will_delay_us: int | None = None
    wills: list[list] = field(default_factory=list)
    """Wills that are not due: when, of which connection."""


class Broker:
    """One run. `rows`, as JSON Lines holds them; `broken`: whether what the flaw did shows."""

    def __init__(self, seed: object, flaw: str | None = None) -> None:
        self.random = random = Random(f"{seed}:{flaw}")
        self.flaw, self.flaws_left = flaw, 1
        self.rows: list[dict] = []
        self.now_us, self.will_number = 0, 0
        self.sessions = {name: Session(name) for name in CLIENTS[: random.randint(1, 3)]}
        self.sequence: dict[tuple, int] = {}
        self.unacknowledged: dict[str, list[Message]] = {name: [] for name in PUBLISHERS}
        self.retained: dict[str, Message] = {}
        self.copies_each = random.random() < 0.5
        self.purges = random.random() < 0.5
        self.limit = random.choice((3, 100, 100))
        self.tells_sessions = random.random() < 0.5
        self.zero_jumps = random.random() < 0.5
        self.has_wills = random.random() < 0.4
        self.is_long = random.random() < 0.2
        self.incoming: dict[str, deque[Message]] = {name: deque() for name in (*PUBLISHERS, *CLIENTS)}
        self.is_slow = Random(f"{seed}:{flaw}:slow").random() < 0.5
        self.damage: list[tuple] = []
        self.doubled: set[Message] = set()
        self.clock_order = 0

    # The recording

    def row(self, kind: str, at_once: bool = False, **columns) -> dict:
        self.now_us += 0 if at_once else self.random.choice((0, 100, 1000, 3000))
        made = {"event_id": len(self.rows), "time_us": self.now_us, "kind": kind}
        made |= {name: value for name, value in columns.items() if value is not None}
        self.rows.append(made)
        return made

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def strikes(self, flaw: str, share: float = 0.5) -> bool:
        """Whether the flaw is this one, and strikes here."""
        return self.flaw == flaw and self.flaws_left > 0 and self.chance(share)

    def struck(self, *about) -> None:
        self.flaws_left -= 1
        self.damage.append(about)

    # Publishers

    def publish(self) -> None:
        name, topic, qos = (
            self.random.choice(PUBLISHERS),
            self.random.choice(TOPICS),
            self.random.choice((0, 1, 1, 2, 2)),
        )
        if self.unacknowledged[name] and self.chance(0.5):
            self.publish_again(name)
            return
        place = (name, topic, qos)
        self.sequence[place] = self.sequence.get(place, 0) + 1
        interval = self.random.choice((8_000, 60_000, 4_000_000, 9_000_000)) if self.chance(0.25) else None
        is_retained = self.chance(0.1)
        row = self.row(
            "publish",
            publisher=name,
            topic=topic,
            qos=qos,
            sequence=self.sequence[place],
            expiry_interval_us=interval,
            retained=is_retained or None,
        )
        message = Message(
            name, topic, qos, self.sequence[place], None if interval is None else row["time_us"] + interval, is_retained
        )
        if qos:
            self.unacknowledged[name].append(message)
        self.take(message)
        self.acknowledge_publish(name)

    def take(self, message: Message) -> None:
        """Into the broker, which may get to it later."""
        self.incoming[message.publisher].append(message)
        if not self.is_slow:
            self.route_next(message.publisher)

    def route_next(self, name: str) -> None:
        if self.incoming[name]:
            message = self.incoming[name].popleft()
            if message.is_retained:
                self.retained[message.topic] = message
            self.route(message)

    def acknowledge_publish(self, name: str) -> None:
        """Acknowledgements come in order; some are late, some are lost."""
        while (
            self.unacknowledged[name] and self.unacknowledged[name][0] not in self.incoming[name] and self.chance(0.85)
        ):
            self.row("publish_acknowledged", **self.unacknowledged[name].pop(0).columns())

    def publish_again(self, name: str) -> None:
        """What the publisher has no acknowledgement for, after it has connected anew: the broker takes QoS 1 for new
        messages."""
        for message in self.unacknowledged[name]:
            left = None if message.deadline_us is None else message.deadline_us - self.now_us
            if left is not None and left <= 0:
                continue
            self.row("publish", **message.columns(), dup=True)
            self.doubled.add(message)
            if message.qos == 1:
                self.take(message)
        self.acknowledge_publish(name)

    # Routing

    def route(self, message: Message) -> None:
        groups: dict[str, list[tuple[Session, int]]] = {}
        for session in self.sessions.values():
            matched = [one for one in session.filters if matches(str(unshared(one)), message.topic)]
            for one in matched:
                if one.startswith("$share/"):
                    groups.setdefault(one, []).append((session, session.filters[one]))
            plain = [one for one in matched if not one.startswith("$share/")]
            if not plain:
                if not matched and self.strikes("unsubscribed", 0.3) and session.is_online:
                    self.struck(session.name, message)
                    self.enqueue(session, Copy(message, 0 if message.qos == 0 else 1, frozenset()))
                continue
            if self.copies_each:
                for one, granted in [(one, session.filters[one]) for one in plain]:
                    self.enqueue(session, Copy(message, min(message.qos, granted), frozenset([one])))
            else:
                level = min(message.qos, max(session.filters[one] for one in plain))
                self.enqueue(session, Copy(message, level, frozenset(plain)))
        for shared, members in groups.items():
            members = [(one, granted) for one, granted in members if shared in one.filters]
            if members:
                chosen, granted = self.random.choice([pair for pair in members if pair[0].is_online] or members)
                self.enqueue(chosen, Copy(message, min(message.qos, granted), frozenset([shared])))

    def enqueue(self, session: Session, copy: Copy) -> None:
        message = copy.message
        if copy.filters and not copy.filters & session.filters.keys():
            return  # the session has ended in between
        copy.number = session.number
        if self.strikes("grant", 0.3) and message.qos and not copy.is_retained:
            copy.level = self.random.choice([qos for qos in range(message.qos + 1) if qos != copy.level])
            self.struck(session.name, message)
        if copy.level == 0 and (not session.is_online or self.zero_jumps):
            self.flush(session, message)
            if session.is_online and (message.deadline_us is None or message.deadline_us > self.now_us):
                self.send(session, copy)
            return
        if self.strikes("lose", 0.3) and message.qos and copy.level:
            self.struck(session.name, message)
            return
        session.queue.append(copy)
        if self.strikes("swap") and len(session.queue) > 1:
            first = session.queue[-2]
            if (first.message.publisher, first.message.topic, first.message.qos) == (
                message.publisher,
                message.topic,
                message.qos,
            ):
                session.queue[-2], session.queue[-1] = copy, first
                self.struck(session.name, message, first.message)
        while len(session.queue) > self.limit:
            oldest = session.queue.popleft()
            self.row("trim", **oldest.message.columns(), subscriber=session.name)

    # To the subscriber

    def send_next(self, session: Session) -> None:
        """The next packet of the queue, if the window allows; what is to be sent again goes first."""
        if not session.is_online:
            return
        here = sum(one.sent_in == session.connection and one.counts for one in session.inflight.values())
        may_exceed = self.strikes("window", 0.5) and here >= session.maximum
        if session.resend:
            identifier = session.resend[0]
            exchange = session.inflight[identifier]
            if exchange.stage == "publish" and here >= session.maximum:
                return
            session.resend.popleft()
            self.send_again(session, identifier, exchange)
            return
        if not session.queue or (session.queue[0].level and here >= session.maximum and not may_exceed):
            return
        copy = session.queue.popleft()
        deadline = copy.message.deadline_us
        self.flush(session, copy.message)
        if deadline is not None and deadline <= self.now_us:
            if self.strikes("late"):
                self.struck(session.name, copy.message)
            else:
                if self.chance(0.7):
                    self.row("expire", True, **copy.message.columns(), subscriber=session.name)
                return
        elif deadline is not None and self.strikes("early", 0.3):
            self.struck(session.name, copy.message)
            self.row("expire", True, **copy.message.columns(), subscriber=session.name)
            return
        if may_exceed:
            self.struck(session.name, copy.message)
        self.send(session, copy)

    def send(self, session: Session, copy: Copy) -> None:
        identifier = None
        if copy.level:
            if self.strikes("same-id") and session.inflight:
                identifier = self.random.choice(list(session.inflight))
                if session.inflight[identifier].copy.message != copy.message and identifier not in session.resend:
                    self.struck(session.name, copy.message, session.inflight[identifier].copy.message)
                else:
                    identifier = None
            if identifier is None:
                session.identifier = session.identifier % 40 + 1
                while session.identifier in session.inflight:
                    session.identifier += 1
                identifier = session.identifier
            self.clock_order += 1
            session.inflight.pop(identifier, None)
            session.inflight[identifier] = Exchange(copy, "publish", session.connection, self.clock_order)
        self.put(session, ("publish", copy, identifier, False))

    def send_again(self, session: Session, identifier: int, exchange: Exchange) -> None:
        exchange.sent_in = session.connection
        if exchange.stage != "publish":
            exchange.counts = False
            session.down.append(("release", identifier))
            return
        dup = True
        if self.strikes("no-dup") and exchange.copy.has_begun:
            dup = False
            self.struck(session.name, exchange.copy.message)
        if self.strikes("new-id") and exchange.copy.has_begun and not exchange.copy.is_retained:
            self.struck(session.name, exchange.copy.message)
            del session.inflight[identifier]
            identifier = next(number for number in range(60, 160) if number not in session.inflight)
            session.inflight[identifier] = exchange
        self.put(session, ("publish", exchange.copy, identifier, dup))

    def flush(self, session: Session, message: Message) -> None:
        """Let what is in the pipe arrive before the broker looks whether a deadline has passed."""
        while message.deadline_us is not None and session.down:
            self.arrive(session)

    def put(self, session: Session, packet: tuple) -> None:
        """Into the pipe. What has a deadline arrives at once or is lost with the connection, so that times are those of
        the broker."""
        session.down.append(packet)
        if packet[1].message.deadline_us is not None:
            if self.chance(0.15):
                self.disconnect(session)
            else:
                while session.down:
                    self.arrive(session)

    def arrive(self, session: Session) -> None:
        """The next packet reaches the subscriber, which answers."""
        if not session.down:
            return
        what, *about = session.down.popleft()
        if what == "release":
            (identifier,) = about
            self.row("release", subscriber=session.name, packet_id=identifier)
            session.up.append(("complete", identifier))
            return
        copy, identifier, dup = about
        message, interval = copy.message, None
        if message.deadline_us is not None:
            interval = max(0, message.deadline_us - self.now_us)
            if self.strikes("interval") and interval < 5_000_000:
                interval += 3_000_000
                self.struck(session.name, message)
        copy.has_begun = True
        self.row(
            "deliver",
            message.deadline_us is not None,
            **message.columns(),
            expiry_interval_us=interval,
            subscriber=session.name,
            packet_id=identifier,
            dup=dup or None,
            retained=copy.is_retained or None,
            delivered_qos=copy.level if copy.level != message.qos else None,
            session=copy.number if self.tells_sessions else None,
        )
        if copy.level:
            session.up.append(("acknowledge" if copy.level == 1 else "receive", identifier, copy))

    def answer(self, session: Session) -> None:
        """The broker has the next answer."""
        if not session.up:
            return
        what, identifier, *_ = session.up.popleft()
        exchange = session.inflight.get(identifier)
        if exchange is None:
            return
        if what == "receive":
            if exchange.stage != "publish" or exchange.copy.level != 2:
                return
            refused = self.chance(0.05)
            self.row("receive", subscriber=session.name, packet_id=identifier, reason_code=135 if refused else None)
            if refused:
                self.forget(session, identifier)
                return
            exchange.stage = "release"
            self.clock_order += 1
            exchange.order = self.clock_order
            if identifier not in session.resend:
                exchange.sent_in = session.connection
                session.down.append(("release", identifier))
        elif (what == "complete") == (exchange.stage == "release"):
            more = exchange.copy.message.columns() if self.chance(0.3) and not exchange.copy.is_retained else {}
            self.row("acknowledge", subscriber=session.name, packet_id=identifier, **more)
            if self.strikes("again") and identifier not in session.resend and exchange.stage == "publish":
                self.struck(session.name, exchange.copy.message, identifier)
                exchange.order = -1
                return
            self.forget(session, identifier)

    def forget(self, session: Session, identifier: int) -> None:
        del session.inflight[identifier]
        if identifier in session.resend:
            session.resend.remove(identifier)

    # Sessions

    def connect(self, session: Session) -> None:
        if session.is_online:
            if self.chance(0.5) or session.will_delay_us is not None:
                self.disconnect(session)
            else:
                self.lose_connection(session)  # taken over
        self.publish_wills(session)
        if session.filters or session.queue or session.inflight:
            if self.chance(0.15):
                self.clear(session)
        elif self.chance(0.3):
            self.clear(session)
        if session.wills and self.strikes("will-back"):
            self.struck(session.name)
        else:
            session.wills.clear()  # the client is back before they were due
        session.connection += 1
        session.is_online = True
        session.maximum = self.random.choice((1, 2, 65535, 65535))
        session.will_delay_us = self.random.choice((0, 50_000)) if self.has_wills and self.chance(0.5) else None
        self.row(
            "connect", subscriber=session.name, receive_maximum=None if session.maximum == 65535 else session.maximum,
            will_delay_us=session.will_delay_us, connection=session.connection if self.has_wills else None,
        )  # fmt: skip
        publishes = [(one.order, identifier) for identifier, one in session.inflight.items() if one.stage == "publish"]
        releases = [(one.order, identifier) for identifier, one in session.inflight.items() if one.stage == "release"]
        order = [identifier for _, identifier in sorted(publishes)]
        if self.strikes("resend-order") and len(publishes) > 1:
            order.reverse()
            self.struck(session.name, *(session.inflight[identifier].copy.message for identifier in order))
        if self.strikes("skip") and order and session.inflight[order[0]].copy.has_begun:
            skipped = order.pop(0)
            self.struck(session.name, session.inflight.pop(skipped).copy.message)
        session.resend = deque(identifier for _, identifier in sorted(releases))
        session.resend.extend(order)
        if self.strikes("duplicate", 0.9):  # few have begun at QoS 2 when their connection ends
            twice = [
                identifier
                for identifier in order
                if session.inflight[identifier].copy.has_begun and session.inflight[identifier].copy.level == 2
            ]
            if twice:
                exchange = session.inflight[twice[0]]
                self.forget(session, twice[0])
                session.queue.appendleft(exchange.copy)
                self.struck(session.name, exchange.copy.message)

    def lose_connection(self, session: Session) -> None:
        session.is_online = False
        session.down.clear()
        session.up.clear()
        session.resend.clear()

    def disconnect(self, session: Session) -> None:
        if not session.is_online:
            return
        says_goodbye = self.chance(0.2)
        self.row("disconnect", subscriber=session.name, reason_code=0 if says_goodbye else None)
        self.lose_connection(session)
        if (
            session.will_delay_us is not None
            and (not says_goodbye or self.will_struck(session, "will-goodbye"))
            and not self.will_struck(session, "will-never")
        ):
            early = 20_000 if session.will_delay_us and self.will_struck(session, "will-early") else 0
            session.wills.append([self.now_us + session.will_delay_us - early, session.connection])
        session.will_delay_us = None
        self.publish_wills(session)
        if self.chance(0.1):
            self.clear(session)

    def will_struck(self, session: Session, flaw: str) -> bool:
        if not self.strikes(flaw):
            return False
        self.struck(session.name, session.connection)
        return True

    def publish_wills(self, session: Session) -> None:
        """Those that are due."""
        while session.wills and session.wills[0][0] <= self.now_us:
            _, connection = session.wills.pop(0)
            for _ in range(1 + self.will_struck(session, "will-twice")):
                place = (session.name, "a", 1)
                self.sequence[place] = self.sequence.get(place, 0) + 1
                message = Message(*place, self.sequence[place])
                self.row("publish", **message.columns(), subscriber=session.name, connection=connection)
                self.row("publish_acknowledged", **message.columns(), subscriber=session.name, connection=connection)
                self.route(message)

    def clear(self, session: Session) -> None:
        self.row("clear", subscriber=session.name, session=session.number if self.tells_sessions else None)
        session.number += 1
        if self.strikes("stale") and session.queue:
            self.struck(session.name, *(copy.message for copy in session.queue))
        else:
            session.queue.clear()
        session.filters.clear()
        session.inflight.clear()
        session.resend.clear()
        for will in session.wills:
            will[0] = min(will[0], self.now_us)
        self.publish_wills(session)

    def subscribe(self, session: Session) -> None:
        if not session.is_online:
            return
        one, qos = self.random.choice(FILTERS), self.random.choice((0, 1, 2, 2))
        self.row("subscribe", subscriber=session.name, topic=one, qos=qos)
        session.filters[one] = qos
        if not one.startswith("$share/"):
            for topic, message in self.retained.items():
                if matches(one, topic) and (message.deadline_us is None or message.deadline_us > self.now_us):
                    self.enqueue(session, Copy(message, min(message.qos, qos), frozenset([one]), is_retained=True))

    def unsubscribe(self, session: Session) -> None:
        if not (session.is_online and session.filters):
            return
        one = self.random.choice(list(session.filters))
        del session.filters[one]
        if self.purges:
            session.queue = deque(
                copy for copy in session.queue if copy.filters & session.filters.keys() or not copy.filters
            )
        self.row("unsubscribe", subscriber=session.name, topic=one)

    # The run

    def step(self) -> None:
        waiting = [name for name, messages in self.incoming.items() if messages]
        if waiting and self.chance(0.3):
            self.route_next(self.random.choice(waiting))
        for one in self.sessions.values():
            self.publish_wills(one)
        session = self.random.choice(list(self.sessions.values()))
        dice = self.random.random()
        if dice < 0.25:
            self.publish()
        elif dice < 0.45:
            self.send_next(session)
        elif dice < 0.65:
            self.arrive(session)
        elif dice < 0.82:
            self.answer(session)
        elif dice < 0.88:
            self.subscribe(session)
        elif dice < 0.90:
            self.unsubscribe(session)
        elif dice < 0.94:
            self.disconnect(session)
        elif dice < 0.98:
            if not session.is_online or self.chance(0.2):
                self.connect(session)
        elif dice < 0.985 and not session.is_online:
            self.clear(session)
        elif self.chance(0.3):
            self.now_us += self.random.choice((10_000, 100_000, 2_000_000))

    def run(self) -> list[dict]:
        for session in self.sessions.values():
            if self.chance(0.9):
                self.connect(session)
                self.subscribe(session)
                self.subscribe(session)
        for _ in range(self.random.randrange(20, 400 if self.is_long else 120)):
            self.step()
        if self.chance(0.15):
            self.row("cut")
        else:
            self.finish()
        return self.rows

    def finish(self) -> None:
        """Everything that may come comes; a few clients stay away."""
        for name in PUBLISHERS:
            while self.incoming[name]:
                self.route_next(name)
            while self.unacknowledged[name]:
                self.acknowledge_publish(name)
        there = [one for one in self.sessions.values() if one.is_online or self.chance(0.8)]
        for _ in range(2 if self.has_wills else 1):  # a Will that comes now is a message to others
            for session in there:
                self.drain(session)
        for session in self.sessions.values():
            self.publish_wills(session)
        for session in there:
            self.drain(session)
        self.row("end")

    def drain(self, session: Session) -> None:
        for _ in range(1000):
            if not session.is_online:
                self.connect(session)
            before = (
                len(session.queue),
                len(session.inflight),
                len(session.resend),
                len(session.down),
                len(session.up),
            )
            if not any(before):
                break
            while session.down:
                self.arrive(session)
            while session.up:
                self.answer(session)
            self.send_next(session)
            if (
                session.inflight
                and all(one.order < 0 for one in session.inflight.values())
                and not (session.queue or session.down or session.up)
            ):
                break
