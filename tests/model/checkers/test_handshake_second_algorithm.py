"""`handshake`, judged a second time: for each packet, the rows of its identifier are looked through backwards for the
one that it answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orderlab.model.checkers.handshake import LAW, HandshakeChecker, handshake_verdict
from orderlab.model.checkers.judge import Question, in_memory, judge
from orderlab.model.history.events import EventKind, History
from orderlab.model.history.notation import parse_history

NEXT = {"D": "R", "R": "L", "L": "K", "K": "D"}


@st.composite
def sessions(draw):
    """A line about one client whose exchanges mostly go on as they should, over connections that come and go."""
    words, last, number = [], {}, 0
    for step in draw(st.lists(st.sampled_from("nnnnnnnnnxx1TC+-"), min_size=3, max_size=30)):
        identifier = draw(st.integers(1, 3))
        if step in "C+-":
            words.append(step)
        elif step == "T" and number:
            words.append(f"T{number}q2#{identifier}")
        elif step in "nx1":
            kind = NEXT[last.get(identifier, "K")] if step == "n" else draw(st.sampled_from("DRLK"))
            last[identifier] = kind
            if kind == "D" or step == "1":
                again = bool(number) and not draw(st.integers(0, 3))
                number += not again
                words.append(f"D{number}q{1 if step == '1' else 2}#{identifier}{'!' if again else ''}")
            else:
                refused = kind == "R" and not draw(st.integers(0, 9))
                words.append(f"{kind}#{identifier}{'$131' if refused else ''}")
    return " ".join(words)


class SlowJudge:
    """Looks backwards from each packet. `broken` and `met`: rows by the letter of the rule."""

    def __init__(self, history):
        self.rows, batch = [], history.joined()
        for row in range(len(batch)):
            self.rows.append(
                {
                    name: int(getattr(batch, name)[row])
                    for name in ("kind", "packet_id", "qos", "sequence", "reason_code")
                }
            )
        self.broken, self.met = {"R": [], "L": [], "K": []}, {"R": 0, "L": 0, "K": 0}
        judges = {
            EventKind.RECEIVE: self.on_receive,
            EventKind.RELEASE: self.on_release,
            EventKind.ACKNOWLEDGE: self.on_acknowledge,
        }
        for number, row in enumerate(self.rows):
            if row["kind"] in judges:
                judges[row["kind"]](number)

    def exchange(self, number):
        """The rows of the exchange under the identifier of a row, before it, begun in this session; None where nothing
        can be said.

        It begins with the PUBLISH behind the last PUBCOMP (or behind what made it unknown). An empty list: it has not
        begun."""
        identifier, rows = self.rows[number]["packet_id"], []
        for at in range(number - 1, -1, -1):
            if self.rows[at]["kind"] == EventKind.CLEAR:
                break
            if self.rows[at]["packet_id"] == identifier:
                rows.insert(0, at)
        state, held = "silent", []
        for at in rows:
            row, kind = self.rows[at], self.rows[at]["kind"]
            is_publish = kind == EventKind.DELIVER and row["qos"] == 2
            is_open = state == "open"
            if is_publish and state in ("silent", "done"):
                state, held = "open", [at]
            elif (is_publish and is_open and row["sequence"] != self.rows[held[0]]["sequence"]) or (
                kind == EventKind.DELIVER and not is_publish and is_open
            ):
                state = "mixed"
            elif (kind == EventKind.TRIM and is_open and row["sequence"] == self.rows[held[0]]["sequence"]) or (
                kind == EventKind.RECEIVE and row["reason_code"] >= 128 and is_open
            ):
                state = "silent"
            elif kind == EventKind.ACKNOWLEDGE:
                state = "done" if state in ("open", "done") else "silent"
            if kind != EventKind.DELIVER or is_publish:
                held.append(at)
        return state, [at for at in held if self.rows[at]["kind"] != EventKind.TRIM]

    def connection(self, number):
        return sum(row["kind"] == EventKind.CONNECT for row in self.rows[:number])

    def is_of_nothing(self, number):
        """Whether the session began in the recording, over a new connection, and the identifier belongs to no earlier
        connection that may still be there."""
        clears = [at for at, row in enumerate(self.rows[:number]) if row["kind"] == EventKind.CLEAR]
        if not clears or self.connection(number) <= self.connection(clears[-1]):
            return False
        touched = [
            at
            for at in range(number)
            if self.rows[at]["packet_id"] == self.rows[number]["packet_id"] and self.touches(at)
        ]
        if not any(self.rows[at]["kind"] == EventKind.DELIVER for at in touched):
            return True
        return any(row["kind"] == EventKind.DISCONNECT for row in self.rows[touched[-1] : number])

    def touches(self, at):
        row = self.rows[at]
        return row["kind"] in (EventKind.RECEIVE, EventKind.RELEASE) or (
            row["kind"] == EventKind.DELIVER and row["qos"] == 2
        )

    def is_known_here(self, number):
        """Whether a PUBLISH with QoS 2 came under the identifier in this session."""
        for row in reversed(self.rows[:number]):
            if row["kind"] == EventKind.CLEAR:
                return False
            if (
                row["kind"] == EventKind.DELIVER
                and row["qos"] == 2
                and row["packet_id"] == self.rows[number]["packet_id"]
            ):
                return True
        return False

    def note(self, rule, number, is_wrong):
        self.met[rule] += 1
        if is_wrong:
            self.broken[rule].append(number)

    def has(self, rows, kind):
        return any(self.rows[at]["kind"] == kind for at in rows)

    def on_receive(self, number):
        state, _ = self.exchange(number)
        if state in ("open", "done"):
            self.note("R", number, state == "done")
        elif not self.is_known_here(number) and self.is_of_nothing(number):
            self.note("R", number, True)

    def on_release(self, number):
        state, rows = self.exchange(number)
        if state == "open":
            self.note("L", number, not self.has(rows, EventKind.RECEIVE) and not self.has(rows, EventKind.RELEASE))
        elif state == "done":
            released = [
                at for at in rows if self.rows[at]["kind"] == EventKind.RELEASE and not self.is_behind_the_end(at, rows)
            ]
            if released and self.connection(number) and self.connection(released[-1]) == self.connection(number):
                self.note("L", number, True)
        elif not self.is_known_here(number) and self.is_of_nothing(number):
            self.note("L", number, True)

    def is_behind_the_end(self, at, rows):
        ends = [one for one in rows if self.rows[one]["kind"] == EventKind.ACKNOWLEDGE]
        return bool(ends) and at > ends[0]

    def on_acknowledge(self, number):
        state, rows = self.exchange(number)
        if state == "open":
            self.note("K", number, not self.has(rows, EventKind.RELEASE))


@settings(max_examples=300, deadline=None)
@given(sessions(), st.lists(st.integers(1, 6), max_size=6))
def test_both_say_the_same_however_the_history_is_cut(line, sizes):
    history = parse_history(line)
    if not len(history):
        return
    slow = SlowJudge(history)
    kinds = set(history.joined().kind.tolist())
    rules = {"R"} | ({"L"} if EventKind.RECEIVE in kinds else set()) | ({"K"} if EventKind.RELEASE in kinds else set())
    broken = sorted(number for rule in rules for number in slow.broken[rule])
    parts = history.split(sizes)
    for form in (history, parts):
        checker = HandshakeChecker(form.names)
        for batch in form:
            checker.observe(batch)
        verdict = handshake_verdict(checker.partial(), {})
        assert verdict.work["violations"] == len(broken), broken
        assert verdict.work["antecedents"] == sum(slow.met[rule] for rule in rules)
        assert not broken or verdict.witness.event_id == broken[0]


LONG = (
    # The exchange before the one that breaks is no part of it, however often the identifier was used.
    "D1q2#1 R#1$131 L#1 K#1 D1q2#1! R#1$131 L#1 K#1 D1q2#1! R#1$131 L#1 K#1 D1q2#1! R#1$131 L#1 K#1 D1q2#1! R#1 L#1 "
    "K#1 R#1$131",
    # What ended the session is shown, however often the client has connected since.
    "+ D1q2#1 R#1 - C + - + - + - + - + - + - + L#1",
    "+ D1q2#1 R#1 L#1 - + L#1 - + L#1 - + L#1 - + L#1 - + L#1 K#1 L#1",
)


def rows_of_a_witness_break_the_law(line):
    """But where another exchange shows that the rows of the missing packet are recorded, and the last one of these is
    not the client's."""
    history = parse_history(line)
    if not len(history):
        return
    (verdict,) = judge(in_memory("a line", history.batches, history.names), Question(laws=(LAW,)))[0]
    if verdict.outcome != "violated" or verdict.witness.other_event_id is None:
        return
    shown = [event["event_id"] for event in verdict.witness.events]
    assert len(shown) <= 16
    alone = History((history.joined().select(shown),), history.names)
    (again,), _ = judge(in_memory("the witness", alone.batches, alone.names), Question(laws=(LAW,)))
    assert again.outcome == "violated", (line, shown)


@settings(max_examples=100, deadline=None)
@given(sessions())
def test_the_rows_of_a_witness_break_the_law_by_themselves(line):
    rows_of_a_witness_break_the_law(line)


@pytest.mark.parametrize("line", LONG)
def test_the_rows_of_a_witness_break_the_law_after_a_long_story(line):
    rows_of_a_witness_break_the_law(line)


@pytest.mark.exhaustive
@settings(max_examples=20_000, deadline=None, derandomize=False)
@given(st.lists(sessions(), min_size=1, max_size=4).map(" ".join))
def test_the_rows_of_a_witness_break_the_law_in_a_long_search(line):
    rows_of_a_witness_break_the_law(line)
