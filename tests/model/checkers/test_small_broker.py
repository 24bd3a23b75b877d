"""A broker written from the standard judges the checkers: what it does right breaks no law, and each planted flaw,
where the rows show it, breaks its law."""

import random
from itertools import combinations, pairwise

import numpy as np
import pytest

from orderlab.model.checkers import witness_rows
from orderlab.model.checkers.delivery.missing import matches, unshared
from orderlab.model.checkers.findings import tell
from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.decoding import RowDecoder
from orderlab.model.history.disk import HistoryWriter, ParquetReader
from orderlab.model.history.events import COLUMNS
from orderlab.model.verdict import Outcome
from tests.model.checkers.small_broker import Broker
from tests.model.checkers.test_delivery_second_algorithm import generated, history_of

BOUND_US = 10**9


def broken_laws(rows):
    decoder = RowDecoder("the broker's history")
    batch = decoder.decode(rows, frozenset(COLUMNS))
    verdicts, _ = judge(in_memory("the broker's history", [batch], decoder.names), Question(drain_bound_us=BOUND_US))
    return {verdict.law for verdict in verdicts if verdict.outcome is Outcome.VIOLATED}, verdicts


@pytest.mark.parametrize("number", [300, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_what_the_standard_allows_breaks_no_law(number):
    tested = {}
    for seed in range(number):
        broken, verdicts = broken_laws(Broker(seed).run())
        assert not broken, seed
        for verdict in verdicts:
            tested[verdict.law] = tested.get(verdict.law, 0) + (verdict.outcome is Outcome.HOLDS)
    assert min(tested.values()) > number / 10, tested


class Rows:
    """What a flaw did to one message of one client."""

    def __init__(self, broker):
        self.broker, self.rows, self.struck = broker, broker.rows, broker.damage[0]
        self.client = self.struck[0]
        self.mine = [row for row in self.rows if row.get("subscriber") == self.client]
        self.filters = {row["topic"] for row in self.kind("subscribe")}
        self.has_ended = self.rows[-1]["kind"] == "end"

    def kind(self, *kinds, message=None, after=-1, before=10**9, **columns):
        wanted = {**columns, **({} if message is None else message.columns())}
        rows = (row for row in self.mine if row["kind"] in kinds and after < row["event_id"] < before)
        return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]

    def published(self, message):
        rows = [row for row in self.rows if row["kind"] == "publish"]
        return [row for row in rows if all(row[name] == value for name, value in message.columns().items())]

    def arrived(self, message, **columns):
        return [row for row in self.kind("deliver", message=message, **columns) if not row.get("retained")]

    def matching(self, message):
        return {one for one in self.filters if matches(str(unshared(one)), message.topic)}

    def is_simple(self, message):
        """One copy only: published once, for a client with at most one filter that matches, and not taken out of the
        queue."""
        return (
            len(self.published(message)) == 1
            and len(self.matching(message)) <= 1
            and not self.kind("trim", "expire", message=message)
        )

    def is_quiet(self, after, message):
        """Whether the session and the subscription stay what they are."""
        changed = self.kind("subscribe", "unsubscribe", after=after)
        return not self.kind("clear", after=after) and not any(
            row["topic"] in self.matching(message) for row in changed
        )


def level(row):
    return row.get("delivered_qos", row["qos"])


def shows_loss(rows, message):
    begun = rows.published(message)[0]["event_id"]
    acknowledged = [
        row
        for row in rows.rows
        if row["kind"] == "publish_acknowledged" and all(row[n] == v for n, v in message.columns().items())
    ]
    is_there = rows.broker.sessions[rows.client].is_online
    is_owed = rows.is_simple(message) and rows.is_quiet(begun, message) and message.deadline_us is None
    is_owed = is_owed and not next(iter(rows.matching(message)), "$share/").startswith("$share/")
    return rows.has_ended and is_there and is_owed and bool(acknowledged) and not rows.arrived(message)


def shows_swap(rows, late, early):
    first, second = (rows.arrived(one)[:1] for one in (late, early))
    if not (first and second and rows.is_simple(late) and rows.is_simple(early)):
        return False
    return level(first[0]) == level(second[0]) and first[0]["event_id"] < second[0]["event_id"]


def shows_twice(rows, message):
    came = [row for row in rows.arrived(message) if level(row) == 2]
    return (
        len(came) > 1
        and rows.is_simple(message)
        and came[0]["packet_id"] != came[1]["packet_id"]
        and rows.is_quiet(came[0]["event_id"], message)
    )


def shows_no_dup(rows, message):
    came = [row for row in rows.arrived(message) if level(row)]
    again = [row for row in came[1:] if not row.get("dup") and row["packet_id"] == came[0]["packet_id"]]
    return bool(again) and rows.is_simple(message) and not rows.kind("clear", after=came[0]["event_id"])


def shows_new_id(rows, message):
    came = [row for row in rows.arrived(message) if level(row)]
    return (
        len({row["packet_id"] for row in came}) > 1
        and rows.is_simple(message)
        and not rows.kind("clear", after=came[0]["event_id"])
    )


def shows_order(rows, *reversed_order):
    """Whether two of them arrived, and over one later connection came again the other way round."""
    connects = [row["event_id"] for row in rows.kind("connect")]
    for later, earlier in combinations(reversed_order, 2):
        once, twice = rows.arrived(earlier), rows.arrived(later)
        if not (
            once and twice and level(once[0]) and level(twice[0]) and rows.is_simple(later) and rows.is_simple(earlier)
        ):
            continue
        for start, end in pairwise([*connects, 10**9]):
            again = [[row["event_id"] for row in came[1:] if start < row["event_id"] < end] for came in (twice, once)]
            # what a later subscription brought again of a retained message may have come first of all
            has_arrived = once[0]["event_id"] < twice[0]["event_id"] < start
            if (
                has_arrived
                and all(again)
                and again[0][0] < again[1][0]
                and not rows.kind("clear", after=once[0]["event_id"], before=start)
            ):
                return True
    return False


def shows_skip(rows, message):
    came = rows.arrived(message)
    if (
        len(came) != 1
        or not rows.has_ended
        or not rows.is_simple(message)
        or not rows.broker.sessions[rows.client].is_online
    ):
        return False
    again = rows.kind("deliver", "receive", "acknowledge", after=came[0]["event_id"], packet_id=came[0]["packet_id"])
    return not again and not rows.kind("clear", after=came[0]["event_id"])


def shows_again(rows, message, identifier):
    done = rows.kind("acknowledge", packet_id=identifier)
    done = [
        row["event_id"]
        for row in done
        if rows.kind("deliver", message=message, packet_id=identifier, before=row["event_id"])
    ]
    if not done or rows.kind("clear", after=done[0]) or not rows.is_simple(message):
        return False
    later = rows.kind("deliver", packet_id=identifier, after=done[0])
    connected = rows.kind("connect", after=done[0])
    return (
        bool(later and connected)
        and later[0]["sequence"] == message.sequence
        and later[0]["event_id"] > connected[0]["event_id"]
    )


def shows_late(rows, message):
    came = rows.arrived(message)
    return bool(came) and came[0]["time_us"] >= message.deadline_us and not came[0].get("dup") and level(came[0]) > 0


def shows_unsubscribed(rows, message):
    begun = rows.published(message)[0]["event_id"]
    came = [row for row in rows.arrived(message) if row.get("session") is None]
    had = {row["topic"] for row in rows.kind("subscribe") if matches(str(unshared(row["topic"])), message.topic)}
    is_alone = rows.has_ended and not rows.kind("subscribe", after=begun) and len(rows.published(message)) == 1
    is_recorded = any(row["kind"] == "subscribe" for row in rows.rows)  # else nobody's subscriptions are
    return bool(came) and not had and is_alone and is_recorded


def shows_grant(rows, message):
    came, granted = (
        rows.arrived(message),
        [row for row in rows.kind("subscribe") if row["topic"] in rows.matching(message)],
    )
    return (
        bool(came)
        and rows.is_simple(message)
        and len(granted) == 1
        and rows.has_ended  # behind a cut a SUBSCRIBE row may have followed that grants it: unknown
        and level(came[0]) != min(message.qos, granted[0]["qos"])
    )


def shows_same_id(rows, message, other):
    came, had = ([row for row in rows.arrived(one) if level(row)] for one in (message, other))
    if (
        not (came and had and rows.is_simple(message) and rows.is_simple(other))
        or came[0]["packet_id"] != had[0]["packet_id"]
    ):
        return False
    between = {"after": had[0]["event_id"], "before": came[0]["event_id"]}
    others = [
        row
        for row in rows.kind("deliver", packet_id=had[0]["packet_id"], **between)
        if row["sequence"] != other.sequence
    ]
    return (
        between["after"] < between["before"]
        and not others
        and not rows.kind("acknowledge", "receive", "clear", **between)
    )


def shows_window(rows, message):
    maximum, flying = None, set()
    for row in rows.mine:
        if row["kind"] in ("connect", "clear"):
            maximum, flying = row.get("receive_maximum") if row["kind"] == "connect" else None, set()
        elif row["kind"] == "deliver" and level(row):
            flying.add(row["packet_id"])
        elif row["kind"] == "acknowledge" or (row["kind"] == "receive" and row.get("reason_code")):
            flying.discard(row["packet_id"])
        if maximum is not None and len(flying) > maximum:
            return True
    return False


def shows_stale(rows, *messages):
    """Its row says for which session it was queued, or it had been acknowledged when that ended."""
    kind = "publish" if rows.broker.tells_sessions else "publish_acknowledged"
    cleared = rows.kind("clear")
    for message in messages:
        for row in rows.arrived(message) if len(rows.published(message)) == 1 else ():
            begun = [one for one in rows.rows if one["kind"] == kind and message.columns().items() <= one.items()]
            if any(one["event_id"] < clear["event_id"] < row["event_id"] for clear in cleared for one in begun):
                return True
    return False


def wills(rows, connection):
    return rows.kind("publish", connection=connection)


def end_of(rows, connection):
    connected = rows.kind("connect", connection=connection)[0]
    return connected, rows.kind("disconnect", after=connected["event_id"])[0]


def shows_no_will(rows, connection):
    connected, ended = end_of(rows, connection)
    due_us = ended["time_us"] + connected["will_delay_us"]
    is_back = [row for row in rows.kind("connect", after=ended["event_id"]) if row["time_us"] < due_us + 20_000]
    is_over = due_us + 20_000 < rows.rows[-1]["time_us"]
    return rows.has_ended and is_over and ended.get("reason_code") is None and not is_back


def shows_early_will(rows, connection):
    connected, ended = end_of(rows, connection)
    told = wills(rows, connection)
    cleared = rows.kind("clear", after=ended["event_id"])
    return bool(told) and not cleared and told[0]["time_us"] < ended["time_us"] + connected["will_delay_us"]


def shows_will_of_one_back(rows):
    for row in rows.kind("publish"):
        connected, ended = end_of(rows, row["connection"])
        back = rows.kind("connect", after=ended["event_id"], before=row["event_id"])
        due_us = ended["time_us"] + connected["will_delay_us"]
        if (
            back
            and back[0]["time_us"] < due_us - 20_000
            and not rows.kind("clear", after=ended["event_id"], before=back[0]["event_id"])
        ):
            return True
    return False


SENT = {"retransmission", "exactly-once", "packet-id", "handshake", "receive-maximum"}
FLAWS = {
    # flaw: its law, whether the rows show it, which other laws may fall with it
    "lose": ("at-least-once", shows_loss, {"agreement", "fifo"}),  # its copy comes after what had come after it
    "swap": ("fifo", shows_swap, {"at-least-once", "agreement"}),
    "duplicate": ("exactly-once", shows_twice, SENT),
    "no-dup": ("retransmission", shows_no_dup, {"exactly-once"}),
    "new-id": ("retransmission", shows_new_id, SENT),
    # what a later one overtook, and the subscriber is gone before it comes
    "resend-order": ("retransmission", shows_order, {"fifo", "at-least-once", "agreement"}),
    "skip": ("retransmission", shows_skip, {"packet-id", "handshake", "at-least-once", "agreement", "receive-maximum"}),
    "again": ("retransmission", shows_again, SENT | {"at-least-once", "agreement"}),
    "late": ("expiry", shows_late, set()),
    "interval": ("expiry", lambda rows, message: True, set()),
    "early": ("expiry", lambda rows, message: True, set()),
    # Where nobody subscribes, what appeared counts as subscribed from the beginning.
    "unsubscribed": ("subscribed", shows_unsubscribed, {"granted-qos", "at-least-once"}),
    "grant": ("granted-qos", shows_grant, {"at-least-once", "agreement", "fifo", "exactly-once"}),
    "same-id": ("packet-id", shows_same_id, SENT | {"at-least-once", "agreement"}),
    "window": ("receive-maximum", shows_window, set()),
    "stale": ("no-phantom", shows_stale, {"subscribed", "granted-qos", "fifo", "exactly-once"}),
    "will-twice": ("will", lambda rows, connection: len(wills(rows, connection)) > 1, set()),
    "will-never": ("will", shows_no_will, set()),
    "will-goodbye": ("will", lambda rows, connection: bool(wills(rows, connection)), set()),
    "will-early": ("will", shows_early_will, set()),
    "will-back": ("will", shows_will_of_one_back, set()),
}

RARE = ("resend-order", "will-back", "will-early")
"""Flaws that seldom show."""


@pytest.mark.parametrize("number", [80, pytest.param(3000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_breaks_its_law_where_the_rows_show_it(flaw, number):
    law, shows, with_it = FLAWS[flaw]
    found = 0
    for seed in range(number * (10 if flaw in RARE else 1)):
        broker = Broker(seed, flaw)
        broker.run()
        if not broker.damage:
            continue
        is_shown = shows(Rows(broker), *broker.damage[0][1:])
        broken, _ = broken_laws(broker.rows)
        assert not is_shown or law in broken, seed
        assert broken <= {law, *with_it}, seed
        found += is_shown
    assert found >= number / 80, found


def unexplained(batch, names):
    """Laws whose witnesses, taken alone, do not break them; and how many do."""
    source = in_memory("a history", [batch], names)
    found, good = [], 0
    for verdict in judge(source, Question(drain_bound_us=0))[0]:
        if verdict.outcome is not Outcome.VIOLATED:
            continue
        shown = [event["event_id"] for event in verdict.witness.events]
        assert len(shown) <= 16
        alone = in_memory("its witness", [batch.select(np.isin(batch.event_id, shown))], names)
        (again,), _ = judge(alone, Question(laws=(verdict.law,), drain_bound_us=0))
        good += again.outcome is Outcome.VIOLATED
        found += [verdict.law] if again.outcome is not Outcome.VIOLATED else []
    return found, good


@pytest.mark.parametrize("whole", [True, False], ids=["short", "long"])
@pytest.mark.parametrize("number", [6, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_the_rows_of_a_witness_break_its_law_by_themselves(number, whole, monkeypatch):
    """Also where the history is too long to be looked through whole."""
    if not whole:
        monkeypatch.setattr(witness_rows, "ROWS_WHOLE", 0)
        monkeypatch.setattr(witness_rows, "ROWS_AROUND", 400)
    good = 0
    for seed in range(number):
        for flaw in FLAWS:
            broker, decoder = Broker(f"witness {seed}", flaw), RowDecoder("the broker's history")
            batch = decoder.decode(broker.run(), frozenset(COLUMNS))
            found, alone = unexplained(batch, decoder.names)
            assert not found, (seed, flaw)
            good += alone
        history = history_of(generated(random.Random(f"witness {seed}"), seed % 2 == 0))
        found, alone = unexplained(history.joined(), history.names)
        assert not found, seed
        good += alone
    assert good > 4 * number


def test_the_rows_of_others_that_stand_for_their_kind_do_not_bring_their_own_finding(monkeypatch):
    """The first row of a kind may be of another subscriber, who looks then as if nothing else had come to it."""
    monkeypatch.setattr(witness_rows, "ROWS_WHOLE", 0)
    history = history_of(generated(random.Random("witness 7"), False))
    assert unexplained(history.joined(), history.names) == ([], 6)


def test_what_is_left_of_a_witness_is_needed():
    """Rows are left out while the same finding stays: none of those that are left can be spared."""
    needed = {3, 40, 41, 77}
    tried = []

    def breaks(rows):
        tried.append(len(rows))
        return needed <= set(rows.tolist())

    assert set(witness_rows.fewest(np.arange(100), breaks).tolist()) == needed
    assert len(tried) < 80


@pytest.mark.parametrize("number", [1, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_rows_of_a_witness_are_found_in_the_parts_that_may_have_them(number, tmp_path):
    """As in a pass over all of a file, whatever its row groups and batches are."""
    told, read = 0, 0
    for seed in range(number):
        for flaw in FLAWS:
            draw, decoder = random.Random(f"parts {seed} {flaw}"), RowDecoder("the broker's history")
            batch = decoder.decode(Broker(f"parts {seed}", flaw).run(), frozenset(COLUMNS))
            batch = batch.select(np.array([draw.random() < 0.97 for _ in range(len(batch))]))
            with HistoryWriter(tmp_path / "h.parquet", decoder.names) as writer:
                for start in range(0, len(batch), group := draw.randint(3, 40)):
                    writer.write(batch.select(np.arange(start, min(len(batch), start + group))))
            reader = ParquetReader(tmp_path / "h.parquet", draw.choice((5, 16, 40)))
            batches = list(reader)
            at = draw.randrange(len(batches))
            again = reader.part(at)
            assert all(getattr(again, name).tolist() == getattr(batches[at], name).tolist() for name in COLUMNS)
            verdicts = judge(in_memory("a history", batches, reader.names), Question(drain_bound_us=0))[0]
            parts = Counting(reader)
            assert tell(verdicts, (), reader.names, parts) == tell(verdicts, batches, reader.names), (seed, flaw)
            found = any(verdict.outcome is Outcome.VIOLATED for verdict in verdicts)
            told, read = told + found, read + found * (len(parts.read) < len(batches))
            assert len(parts.read) == len(set(parts.read))
    assert told > 10 * number
    assert read > told / 4, "parts that cannot have such rows are not to be read"


class Counting:
    """Parts of a file, and which were read."""

    def __init__(self, reader):
        self.extents, self._reader, self.read = reader.extents, reader, []

    def part(self, number):
        self.read.append(number)
        return self._reader.part(number)
