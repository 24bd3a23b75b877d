"""Retransmission, expiry and causal order agree with slow checkers written from the rules, on generated histories."""

import random
from itertools import pairwise

import networkx as nx
import pytest

from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.notation import parse_history
from orderlab.model.verdict import Outcome


def verdict(law, line):
    history = parse_history(line)
    (found,), _ = judge(in_memory("a line", history.batches, history.names), Question(laws=(law,)))
    return found


def session_words(rng):
    """A session that mostly does right: sends, acknowledges, reconnects, resends in order, with slips."""
    words, flying, done, number, online = ["+"], [], [], 0, True
    for _ in range(rng.randrange(3, 25)):
        dice = rng.random()
        if not online:
            online = True
            words.append("+")
            again = flying + [message for message in done if rng.random() < 0.05]
            if rng.random() < 0.3:
                rng.shuffle(again)
            if rng.random() < 0.3:
                again = again[: rng.randrange(len(again) + 1)]
            for message in again:
                words.append(resent(rng, message))
        elif dice < 0.35:
            number += 1
            free = sorted({1, 2, 3, 4} - {message[2] for message in flying}) or [rng.randrange(1, 5)]
            message = [number, rng.choice([1, 2]), free[0], "sent"]
            flying = [other for other in flying if other[2] != free[0]]
            flying.append(message)
            words.append(f"D{number}q{message[1]}#{message[2]}")
        elif dice < 0.6 and flying:
            message = rng.choice(flying)
            if message[1] == 2 and message[3] == "sent":
                message[3] = "received"
                words.append(f"R#{message[2]}")
            elif message[1] == 2 and message[3] == "received":
                message[3] = "released"
                words.append(f"L#{message[2]}")
            else:
                flying.remove(message)
                words.append(f"K#{message[2]}")
                done.append(message)
        elif dice < 0.62:
            if flying and rng.random() < 0.5:
                message = flying.pop(rng.randrange(len(flying)))
            else:
                message = [rng.randrange(1, number + 2), rng.choice([1, 2]), rng.randrange(1, 5), "gone"]
            words.append(f"{rng.choice('TE')}{message[0]}q{message[1]}#{message[2]}")
            if message[3] == "gone" and rng.random() < 0.8:
                words.append(f"D{message[0]}q{message[1]}#{message[2]}")
        elif dice < 0.65:
            flying = []
            words.append("C")
        elif dice < 0.7 and flying:
            words.append(resent(rng, rng.choice(flying)))
        else:
            online = False
            if rng.random() < 0.9:
                words.append("-")
    if rng.random() < 0.3:
        words.append("X")
    return words


def resent(rng, message):
    number, qos, identifier, stage = message
    if stage != "sent" and rng.random() < 0.9:
        return f"L#{identifier}"
    dup = "!" if rng.random() < 0.9 else ""
    return f"D{number}q{qos}#{identifier if rng.random() < 0.95 else 9}{dup}"


class SlowRetransmission:
    """One subscriber, rule by rule. `flying`: in the order sent; each [number, qos, identifier, stage, connection]."""

    def __init__(self, history):
        self.flying, self.received, self.broken = [], [], []
        self.connection, self.online, self.resent, self.released, self.begun_again = 0, True, [], [], []
        self.gone, self.done, self.cleared = {}, {}, -1
        batch = history.joined()
        for row in range(len(batch)):
            self.event = row
            identifier, number = int(batch.packet_id[row]), int(batch.sequence[row])
            step = getattr(self, f"on_{int(batch.kind[row])}", None)
            if step is not None:
                step(number, int(batch.qos[row]), identifier, int(batch.dup[row]) > 0)
        self.event = None
        if 14 not in batch.kind and self.connection and self.online:
            self.broken += [None for message in self.flying if message[4] < self.connection]

    def under(self, identifier):
        return next((message for message in self.flying if message[2] == identifier), None)

    def breaks(self):
        self.broken.append(self.event)

    def forget(self, message):
        self.flying.remove(message)
        self.received = [other for other in self.received if other is not message]

    def on_2(self, number, qos, identifier, dup):
        message = self.under(identifier)
        if message is not None and message[:2] == [number, qos]:
            if message[3] != "sent":
                self.breaks()
                return
            if not dup:
                self.breaks()
            if self.connection:
                if message[4] == self.connection or any(message[5] < other for other in self.resent):
                    self.breaks()
                self.resent.append(message[5])
                message[4] = self.connection
            return
        if message is None and self.gone.pop(identifier, None) == [number, qos, self.connection]:
            return
        if message is None and self.is_done(identifier) and self.done[identifier][:2] == [number, qos]:
            self.breaks()
        self.done.pop(identifier, None)
        if dup:
            other = next(
                (
                    other
                    for other in reversed(self.flying)
                    if other[:2] == [number, qos] and not self.is_second_copy_of(other)
                ),
                None,
            )
            if other is not None:
                self.breaks()
                self.forget(other)
        if message is not None and message in self.flying:
            self.forget(message)
        self.counter = getattr(self, "counter", 0) + 1
        self.flying.append([number, qos, identifier, "sent", self.connection, self.counter])
        if dup and self.connection:
            self.begun_again.append(self.counter)

    def is_second_copy_of(self, other):
        return other[1] == 1 and other[3] == "sent" and (other[5] in self.resent or other[5] in self.begun_again)

    def on_3(self, number, qos, identifier, dup):
        message = self.under(identifier)
        if message is not None and message[3] == "sent":
            self.counter += 1
            message[3:] = ["received", self.connection if self.online else -1, self.counter]

    def on_4(self, number, qos, identifier, dup):
        message = self.under(identifier)
        if message is None:
            if self.is_done(identifier):
                self.breaks()
                self.done[identifier][2] = self.connection
            return
        if message[3] == "sent":
            self.counter += 1
            message[4:] = [self.connection, self.counter]
        elif message[4] == self.connection:
            if message[3] == "released" and self.connection:
                self.breaks()
        elif self.connection:
            if any(message[5] < other for other in self.released):
                self.breaks()
            self.released.append(message[5])
            message[4] = self.connection
        message[3] = "released"

    def on_5(self, number, qos, identifier, dup):
        message = self.under(identifier)
        if message is not None:
            self.flying.remove(message)
            self.done[identifier] = [*message[:2], self.connection]

    def is_done(self, identifier):
        return identifier in self.done and self.cleared < self.done[identifier][2] < self.connection

    def on_6(self, number, qos, identifier, dup):
        message = next((other for other in reversed(self.flying) if other[:2] == [number, qos]), None)
        if message is not None:
            self.flying.remove(message)
        elif self.under(identifier) is None:
            self.gone[identifier] = [number, qos, self.connection]
            self.done.pop(identifier, None)

    on_7 = on_6

    def on_8(self, *_):
        self.flying, self.cleared = [], self.connection

    def close(self):
        if self.connection and self.online:
            for message in self.flying:
                if message[4] < self.connection:
                    later = self.resent if message[3] == "sent" else self.released
                    if any(message[5] < other for other in later):
                        self.breaks()

    def on_11(self, *_):
        self.close()
        self.connection, self.online, self.resent, self.released, self.begun_again = (
            self.connection + 1,
            True,
            [],
            [],
            [],
        )

    def on_12(self, *_):
        self.close()
        self.online = False


def test_retransmission_agrees_with_the_rules():
    outcomes = {Outcome.HOLDS: 0, Outcome.VIOLATED: 0}
    for seed in range(2500):
        words = session_words(random.Random(seed))
        line = " ".join(words)
        found, slow = verdict("retransmission", line), SlowRetransmission(parse_history(line))
        assert found.work["violations"] == len(slow.broken), (seed, line, slow.broken)
        if slow.broken:
            assert found.witness.event_id == slow.broken[0], (seed, line)
        outcomes[Outcome.HOLDS if found.vacuous else found.outcome] += 1
    assert min(outcomes.values()) > 400


@pytest.mark.parametrize("number", [1500, pytest.param(40_000, marks=pytest.mark.exhaustive)])
def test_expiry_agrees_with_the_rule(number):
    outcomes = {Outcome.HOLDS: 0, Outcome.VIOLATED: 0}
    excused = 0
    for seed in range(number):
        rng, clock, words, broken = random.Random(seed), 0, [], []
        published, deadlines, begun = {}, {}, set()
        latest = {}  # deadlines of copies that were published again
        spans = {"a": [], "b": []}  # of each client the connections, [begin, end]
        for _ in range(rng.randrange(2, 24)):
            clock += rng.choice([0, 5, 40])
            words.append(f"@{clock}")
            event = sum(not word.startswith("@") for word in words)
            message, subscriber = rng.randrange(4), rng.choice("ab")
            kind = rng.choice("PPDDDE+-")
            mine = spans[subscriber]
            if kind == "P":
                interval = rng.choice([None, 20, 80])
                words.append(f"P{message}" + (f"%{interval}" if interval else ""))
                if interval and message not in deadlines:
                    published[message], deadlines[message] = clock, clock + interval
                elif interval:
                    latest[message] = clock + interval
            elif kind in "+-":
                words.append(f"{kind}>{subscriber}")
                if mine and (kind == "-" or mine[-1][1] is None):
                    mine[-1][1] = clock
                elif kind == "-":  # of a connection that the recording has not seen begin
                    mine.append([-1, clock])
                if kind == "+":
                    mine.append([clock, None])
            elif kind == "D":
                dup, level = rng.choice(["", "!"]), rng.choice(["", "", "d0"])
                words.append(f"D{message}{dup}{level}>{subscriber}")
                began = mine[-1][0] if mine else -1
                since = published.get(message, 0)
                is_proof = dup and not level and (began <= since or any(end >= since for _, end in mine[:-1]))
                is_late = clock >= max(deadlines.get(message, 10**9), latest.get(message, 0))
                if is_late and (message, subscriber) not in begun:
                    excused += bool(is_proof)
                    if not is_proof:
                        broken.append(event)
                begun.add((message, subscriber))
            else:
                words.append(f"E{message}>{subscriber}")
                if clock < deadlines.get(message, -1):
                    broken.append(event)
            clock += 1
        found = verdict("expiry", " ".join(words))
        assert found.work["violations"] == len(broken), (seed, words)
        if broken:
            assert found.witness.event_id == broken[0]
        outcomes[Outcome.HOLDS if found.vacuous else found.outcome] += 1
    assert min(outcomes.values()) > 300
    assert excused > 50


@pytest.mark.parametrize(
    ("copies", "delivery", "outcome"),
    [
        ("P1!%5000", "@3000 D1%4000#1", Outcome.HOLDS),  # a new message to the server, as of its second copy
        ("P1!%5000", "@3000 D1%2000#1", Outcome.HOLDS),  # or the first
        ("P1!%5000", "@3000 D1%5000#1", Outcome.VIOLATED),  # neither has as much left
        ("P1!%5000", "@3000 D1%1000#1", Outcome.VIOLATED),  # nor as little
        ("", "@3000 D1%4000#1", Outcome.VIOLATED),
        ("P1!%5000", "@6000 D1#1", Outcome.HOLDS),
        ("P1!%5000", "@7500 D1#1", Outcome.VIOLATED),
        ("", "@6000 D1#1", Outcome.VIOLATED),
    ],
)
def test_a_copy_that_was_published_again_has_an_interval_of_its_own(copies, delivery, outcome):
    assert verdict("expiry", f"S + P1%5000 @2000 {copies} A1 {delivery} K1#1 Z").outcome is outcome


def test_causal_order_agrees_with_the_closure_of_happens_before():
    outcomes = {Outcome.HOLDS: 0, Outcome.VIOLATED: 0}
    for seed in range(1500):
        rng, words, sent = random.Random(seed), [], []
        for _ in range(rng.randrange(4, 16)):
            if not sent or rng.random() < 0.4:
                client = rng.choice("abc")
                number = 1 + sum(message[0] == client for message in sent)
                sent.append((client, number))
                words.append(f"P{number}.{client}")
            else:
                client, number = rng.choice(sent)
                words.append(f"D{number}.{client}>{rng.choice('abcd')}")
        broken = causal_violations(words)
        found = verdict("causal", " ".join(words))
        assert found.work["violations"] == len(broken), (seed, words, broken)
        if broken:
            assert found.witness.event_id == broken[0]
            cycle = [event["event_id"] for event in found.witness.events]
            graph = happens_before(words)
            assert all(nx.has_path(graph, a, b) for a, b in pairwise(cycle[:-1]))
        outcomes[Outcome.HOLDS if found.vacuous else found.outcome] += 1
    assert min(outcomes.values()) > 150


def parsed(words):
    """(kind, publisher, number, client that does it)."""
    for word in words:
        message, _, subscriber = word[1:].partition(">")
        number, _, publisher = message.partition(".")
        yield word[0], publisher, int(number), subscriber or publisher


def happens_before(words):
    graph, last, publish = nx.DiGraph(), {}, {}
    for event, (kind, publisher, number, client) in enumerate(parsed(words)):
        graph.add_node(event)
        if client in last:
            graph.add_edge(last[client], event)
        last[client] = event
        if kind == "P":
            publish[publisher, number] = event
        else:
            graph.add_edge(publish[publisher, number], event)
    return graph


def causal_violations(words):
    graph = happens_before(words)
    events = list(parsed(words))
    publish = {(p, n): e for e, (kind, p, n, _) in enumerate(events) if kind == "P"}
    first, broken = {}, []
    for event, (kind, publisher, number, client) in enumerate(events):
        if kind == "P" or (client, publisher, number) in first:
            continue
        earlier = [(p, n) for who, p, n in first if who == client]
        if any(nx.has_path(graph, publish[publisher, number], publish[effect]) for effect in earlier):
            broken.append(event)
        first[client, publisher, number] = event
    return broken


class SlowInflight:
    """One subscriber, rule by rule. `in_use`: identifier -> (message, event, whether it was sent on this
    connection)."""

    def __init__(self, history):
        self.in_use, self.limit, self.broken = {}, 65535, {"packet-id": [], "receive-maximum": []}
        batch = history.joined()
        for row in range(len(batch)):
            kind, identifier = int(batch.kind[row]), int(batch.packet_id[row])
            if kind == 2 and int(batch.qos[row]) > 0:
                message = (int(batch.sequence[row]), int(batch.qos[row]))
                if identifier in self.in_use and self.in_use[identifier][0] != message:
                    self.broken["packet-id"].append(row)
                self.in_use[identifier] = (message, True)
                if sum(here for _, here in self.in_use.values()) > self.limit:
                    self.broken["receive-maximum"].append(row)
            elif kind == 5:
                self.in_use.pop(identifier, None)
            elif kind in (6, 7) and identifier in self.in_use:
                if self.in_use[identifier][0][0] == int(batch.sequence[row]):
                    del self.in_use[identifier]
            elif kind == 8:
                self.in_use = {}
            elif kind in (11, 12):
                self.in_use = {one: (message, False) for one, (message, _) in self.in_use.items()}
                if kind == 11:
                    self.limit = int(batch.receive_maximum[row]) if batch.receive_maximum[row] > 0 else 65535


def test_packets_in_flight_agree_with_the_rules():
    rng, found = random.Random(11), {"packet-id": 0, "receive-maximum": 0}
    for _ in range(400):
        words = [
            f"{word}^{rng.randrange(1, 4)}" if word == "+" and rng.random() < 0.8 else word
            for word in session_words(rng)
        ]
        line = " ".join(words)
        slow = SlowInflight(parse_history(line))
        for law, events in slow.broken.items():
            fast = verdict(law, line)
            assert (fast.outcome is Outcome.VIOLATED) == bool(events), line
            assert fast.work["violations"] == len(events), line
            if events:
                assert fast.witness.event_id == events[0], line
                found[law] += 1
    assert min(found.values()) > 20
