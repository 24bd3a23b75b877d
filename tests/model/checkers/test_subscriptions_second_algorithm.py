"""`subscribed` and `granted-qos`, judged a second time from the definition: every instant between publish and delivery,
every subscription at it."""

from functools import reduce

from hypothesis import example, given, settings
from hypothesis import strategies as st

from orderlab.model.checkers.delivery.missing import matches
from orderlab.model.checkers.findings import Partial
from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.checkers.subscriptions import LAWS, SUBSCRIBE_LASTS_US, SubscriptionChecker
from orderlab.model.history.events import EventKind, History
from orderlab.model.history.notation import parse_history

TOPICS = ("t", "a/b", "a/c", "$x/b")
FILTERS = ("t", "a/b", "a/+", "#", "+/b", "$share/g/a/#", "$x/#", "a/#")


@st.composite
def histories(draw):
    """A line about two clients that subscribe and unsubscribe, two publishers, and deliveries that are often right."""
    words, sent, number, held, millisecond = [], [], {}, set(), 0
    grants = {}
    knows_qos = draw(st.booleans())
    for kind in draw(st.lists(st.sampled_from("SSUPPPDDDDDDC+-J"), min_size=4, max_size=30)):
        client = draw(st.sampled_from("sc"))
        if kind == "J":
            millisecond += draw(st.sampled_from([40, 99, 100, 101]))
            words.append(f"@{millisecond}")
            continue
        millisecond += 1
        if kind == "S":
            topic_filter, qos = draw(st.sampled_from(FILTERS)), draw(st.integers(0, 2))
            held.add((client, topic_filter))
            grants[client, topic_filter] = qos
            words.append(f"S{f'q{qos}' if knows_qos and draw(st.integers(0, 9)) else ''}>{client}:{topic_filter}")
        elif kind == "U":
            client, topic_filter = draw(st.sampled_from(sorted(held) or [("s", "t")]))
            words.append(f"U>{client}:{topic_filter}")
        elif kind == "P":
            publisher, topic, qos = draw(st.sampled_from("pq")), draw(st.sampled_from(TOPICS)), draw(st.integers(0, 2))
            lane = publisher, topic, qos
            number[lane] = number.get(lane, 0) + draw(st.sampled_from([1, 1, 1, 3]))
            sent.append((*lane, number[lane]))
            words.append(f"P{number[lane]}q{qos}.{publisher}:{topic}")
        elif kind == "D":
            if not sent:
                millisecond -= 1
                continue
            publisher, topic, qos, sequence = sent[-draw(st.integers(1, min(len(sent), 5)))]
            if not draw(st.integers(0, 19)):
                sequence += draw(st.sampled_from([-1, 1]))
            level = min(
                qos,
                draw(
                    st.sampled_from(
                        [
                            grants.get((client, f), 2)
                            for f in FILTERS
                            if matches(f.split("/", 2)[-1] if f[0:2] == "$s" else f, topic)
                        ]
                    )
                ),
            )
            if not draw(st.integers(0, 9)):
                level = draw(st.integers(0, 2))
            words.append(
                f"D{max(sequence, 0)}q{qos}d{level}.{publisher}>{client}{draw(st.sampled_from(['', '', '~', '=1', '=2']))}:{topic}"  # noqa: E501
            )
        elif kind == "C":
            words.append(f"C>{client}{draw(st.sampled_from(['', '=1']))}")
        else:
            words.append(f"{kind}>{client}")
    return " ".join([*words, *draw(st.sampled_from([[], [], ["X"]]))])


class SlowJudge:
    """Looks at every instant. `broken` and `met`: the rows that break each law, and that test it."""

    def __init__(self, history):
        batch, names = history.joined(), history.names
        self.batch = batch
        self.rows = [
            {
                name: int(getattr(batch, name)[row])
                for name in (
                    "kind",
                    "time_us",
                    "publisher",
                    "topic",
                    "qos",
                    "subscriber",
                    "sequence",
                    "dup",
                    "session",
                    "delivered_qos",
                )
            }
            for row in range(len(batch))
        ]
        self.topics = names.topics.names
        self.broken, self.met = {law: [] for law in LAWS}, dict.fromkeys(LAWS, 0)
        self.undecided = dict.fromkeys(LAWS, 0)
        self.after = self.subscriptions_after_each_row()
        cuts = [row["time_us"] for row in self.rows if row["kind"] == EventKind.CUT]
        self.cut_us = cuts[0] if cuts else None
        for number, row in enumerate(self.rows):
            if row["kind"] == EventKind.DELIVER:
                self.judge(number, row)
        if not any(row["kind"] == EventKind.SUBSCRIBE for row in self.rows):
            self.broken["subscribed"], self.met["subscribed"], self.undecided["subscribed"] = [], 0, 0

    def subscriptions_after_each_row(self):
        states, held = [], {}
        for row in self.rows:
            if row["kind"] == EventKind.SUBSCRIBE:
                held = {**held, (row["subscriber"], self.topics[row["topic"]]): row["qos"]}
            elif row["kind"] == EventKind.UNSUBSCRIBE:
                held = {key: qos for key, qos in held.items() if key != (row["subscriber"], self.topics[row["topic"]])}
            elif row["kind"] == EventKind.CLEAR:
                held = {key: qos for key, qos in held.items() if key[0] != row["subscriber"]}
            states.append(held)
        return states

    def published_at(self, number, row):
        """The row of the publish; of what nobody published that of the one before it, or None."""
        lane = [row[name] for name in ("publisher", "topic", "qos")]
        same = [
            (other["sequence"], at)
            for at, other in enumerate(self.rows[:number])
            if other["kind"] == EventKind.PUBLISH and [other[name] for name in ("publisher", "topic", "qos")] == lane
        ]
        lower = [at for sequence, at in same if sequence <= row["sequence"]]
        return max(lower) if lower and row["sequence"] <= max(same)[0] else None

    @staticmethod
    def is_match(topic_filter, topic):
        return matches(topic_filter.split("/", 2)[2] if topic_filter.startswith("$share/") else topic_filter, topic)

    def judge(self, number, row):
        who, topic, qos = row["subscriber"], self.topics[row["topic"]], row["qos"]
        cleared = [
            other["session"]
            for other in self.rows[:number]
            if other["kind"] == EventKind.CLEAR and other["subscriber"] == who
        ]
        if 0 <= row["session"] <= max(cleared, default=-1):
            return
        level = row["delivered_qos"]
        begin = self.published_at(number, row)
        granted = {
            grant
            for state in self.after[0 if begin is None else begin : number]
            for (client, f), grant in state.items()
            if client == who and self.is_match(f, topic)
        }
        follow = [
            other["qos"]
            for other in self.rows_soon_after(number, who)
            if self.is_match(self.topics[other["topic"]], topic)
        ]
        is_open = (
            self.cut_us is not None
            and row["time_us"] + SUBSCRIBE_LASTS_US >= self.cut_us
            and self.is_same_connection(number, len(self.rows), who)
        )
        if level > qos:
            self.met["granted-qos"] += 1
            self.broken["granted-qos"].append(number)
        if not granted:
            self.note("subscribed", number, bool(follow), is_open)
            if follow and 0 < qos >= level:
                self.note("granted-qos", number, self.fits(level, qos, follow), is_open)
            return
        self.met["subscribed"] += 1
        if level > qos or qos == 0:
            return
        if self.fits(level, qos, granted):
            self.met["granted-qos"] += bool(granted - {-1})
        else:
            self.note("granted-qos", number, self.fits(level, qos, follow), is_open)

    @staticmethod
    def fits(level, qos, granted):
        return any(level == min(qos, grant) if grant >= 0 else level <= qos for grant in granted)

    def note(self, law, number, is_excused, is_open):
        if is_excused:
            return
        if is_open:
            self.undecided[law] += 1
            return
        self.met[law] += 1
        self.broken[law].append(number)

    def is_same_connection(self, begin, end, who):
        return not any(
            other["subscriber"] == who and other["kind"] in (EventKind.CONNECT, EventKind.DISCONNECT, EventKind.CLEAR)
            for other in self.rows[begin:end]
        )

    def rows_soon_after(self, number, who):
        for at in range(number + 1, len(self.rows)):
            other = self.rows[at]
            if other["time_us"] > self.rows[number]["time_us"] + SUBSCRIBE_LASTS_US or not self.is_same_connection(
                number, at, who
            ):
                return
            if other["kind"] == EventKind.SUBSCRIBE and other["subscriber"] == who:
                yield other


def partial_of(batches, names):
    checker = SubscriptionChecker(names)
    for batch in batches:
        checker.observe(batch)
    return checker.partial()


@settings(max_examples=200, deadline=None)
@given(histories(), st.lists(st.integers(1, 6), max_size=6))
def test_both_say_the_same_however_the_history_is_cut(line, sizes):
    history = parse_history(line)
    if not len(history):
        return
    slow = SlowJudge(history)
    whole = partial_of(history, history.names)
    for law in LAWS:
        assert whole.violations.get(law, 0) == len(slow.broken[law]), (law, slow.broken)
        assert whole.antecedents.get(law, 0) == slow.met[law], law
        assert whole.counts[f"{law}_undecided"] == slow.undecided[law], law
        if slow.broken[law]:
            assert whole.findings[law].event_id == slow.broken[law][0]
    parts = history.split(sizes)
    assert partial_of(parts, parts.names) == whole
    batch = history.joined()
    lane = (batch.publisher * 4 + batch.topic) % 3
    keyed = [partial_of([batch.select((batch.publisher < 0) | (lane == part))], history.names) for part in range(3)]
    merged = reduce(Partial.merge, keyed)
    assert {law: count for law, count in merged.antecedents.items() if count} == {
        law: count for law, count in whole.antecedents.items() if count
    }
    assert (merged.violations, merged.findings) == (whole.violations, whole.findings)


@settings(max_examples=80, deadline=None)
@example("P1q0.p:t D1q0d0.p>s:t +>s S>s:t")
@given(histories())
def test_the_rows_of_a_witness_break_the_law_by_themselves(line):
    history = parse_history(line)
    if not len(history):
        return
    for verdict in judge(in_memory("a line", history.batches, history.names), Question(laws=LAWS))[0]:
        if verdict.outcome != "violated" or len(verdict.witness.events) >= 12:
            continue
        shown = [event["event_id"] for event in verdict.witness.events]
        alone = History((history.joined().select(shown),), history.names)
        (again,), _ = judge(in_memory("the witness", alone.batches, alone.names), Question(laws=(verdict.law,)))
        assert again.outcome == "violated", (verdict.law, line, shown)
