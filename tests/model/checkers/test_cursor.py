"""`cursor-safe`: a reader that was handed what stands behind a message, and never the message; and what excuses it."""

from itertools import product

import pytest

from orderlab.model.checkers.cursor import LAW, REPEAT, check_cursors
from orderlab.model.history.events import EventBatch, EventKind, Names
from orderlab.model.verdict import Outcome

A, B, C = 10, 11, 12
"""Readers."""
OF_READER = {
    "f": EventKind.FAULT,
    "h": EventKind.HEAL,
    "s": EventKind.SUBSCRIBE,
    "-": EventKind.DISCONNECT,
    "+": EventKind.CONNECT,
}


def judged(rows: str, law: str = LAW) -> tuple[Outcome, int]:
    """Words: ``p1`` publishes 1 of producer 0 (q1: of producer 1), ``A1``/``Aq1`` is handed over, ``e1`` expired,
    ``sA`` subscribed, ``f`` a fault begins, ``h`` it has healed, ``fA`` it strikes A, ``-A`` disconnected, ``+A``
    connected."""
    columns: dict[str, list[int]] = {name: [] for name in ("kind", "publisher", "sequence", "subscriber")}
    for word in rows.split():
        if word[0] in OF_READER:
            values = (OF_READER[word[0]], -1, -1, "ABC".index(word[1]) + A if word[1:] else -1)
        else:
            publisher = int("q" in word)
            kind = {"p": EventKind.PUBLISH, "q": EventKind.PUBLISH, "e": EventKind.EXPIRE}.get(
                word[0], EventKind.DELIVER
            )
            reader = "ABC".index(word[0]) + A if kind == EventKind.DELIVER else -1
            values = (kind, publisher, int(word.lstrip("pqeABC")), reader)
        for name, value in zip(columns, values, strict=True):
            columns[name].append(value)
    count, topicless = len(columns["kind"]), {kind for kind in OF_READER.values() if kind != EventKind.SUBSCRIBE}
    batch = EventBatch.of(
        event_id=range(count),
        time_us=range(count),
        topic=[-1 if kind in topicless else 0 for kind in columns["kind"]],
        qos=[1] * count,
        **columns,
    )
    verdict = next(one for one in check_cursors([batch], Names()) if one.law == law)
    return verdict.outcome, int(verdict.work["violations"])


@pytest.mark.parametrize(("rows", "expected"), [
    ("sA sB p1 q1 A1 Aq1 B1 Bq1", (Outcome.HOLDS, 0)),
    ("sA sB p1 q1 Aq1 B1 Bq1", (Outcome.VIOLATED, 1)),  # 1 appeared behind A's marker
    ("sA sB p1 q1 A1 B1 Bq1", (Outcome.HOLDS, 0)),  # A has not come so far
    ("sB p1 sA q1 Aq1 B1 Bq1", (Outcome.HOLDS, 0)),  # A came after 1 was posted
    ("sA sB p1 q1 e1 Aq1 B1 Bq1", (Outcome.UNKNOWN, 0)),  # its time was over
    ("sA sB p1 q1 p2 Aq1 A2 B1 Bq1 B2 C1 Cq1 C2", (Outcome.VIOLATED, 1)),
    ("p1 q1 A1", (Outcome.UNKNOWN, 0)),
])  # fmt: skip
def test_near_misses(rows: str, expected: tuple[Outcome, int]) -> None:
    assert judged(rows) == expected


@pytest.mark.parametrize(("rows", "expected"), [
    ("sA p1 p2 A1 A2", (Outcome.HOLDS, 0)),
    ("sA p1 p2 A1 A2 A2", (Outcome.VIOLATED, 1)),
    ("sA sB p1 A1 B1", (Outcome.HOLDS, 0)),
    ("sA p1 q1 A1 Aq1", (Outcome.HOLDS, 0)),
    ("sA p1 p1 A1 A1", (Outcome.HOLDS, 0)),  # it was sent again, and may be there twice
    ("sA p1 p1 A1 A1 A1", (Outcome.VIOLATED, 1)),  # but not three times
    ("sA p1 A1 A1 p1", (Outcome.VIOLATED, 1)),  # sent again too late to be the reason
    ("sA p1 A1 fA A1", (Outcome.HOLDS, 0)),
    ("sA p1 A1 f A1", (Outcome.VIOLATED, 1)),  # a fault that does not strike the reader
    ("sA sB p1 A1 B1 fB A1", (Outcome.VIOLATED, 1)),
    ("sA p1 A1 -A +A A1", (Outcome.HOLDS, 0)),
    ("sA sB p1 A1 B1 -B +B B1 A1", (Outcome.VIOLATED, 1)),
    ("sA p1 A1 sA A1", (Outcome.HOLDS, 0)),  # it begins anew
    ("sA fA p1 A1 A1", (Outcome.VIOLATED, 1)),  # the fault lies before both
    ("sA p1 fA h A1 A1 A1", (Outcome.VIOLATED, 2)),
    ("sA p1", (Outcome.UNKNOWN, 0)),
])  # fmt: skip
def test_what_is_handed_over_again(rows: str, expected: tuple[Outcome, int]) -> None:
    assert judged(rows, REPEAT) == expected


def test_repeats_by_a_second_algorithm() -> None:
    """For each delivery of the message but the first of its reader: the rows before it are looked through again."""
    for rest in product(("p1", "A1", "B1", "f", "-A", "+B"), repeat=5):
        words = ["p1", *rest]
        repeats = 0
        for at, word in enumerate(words):
            before = [place for place in range(at) if words[place] == word]
            if word in ("A1", "B1") and before:
                own = any(each in ("-" + word[0], "+" + word[0]) for each in words[before[-1] : at])
                repeats += not own and words[:at].count("p1") <= len(before)
        assert judged(" ".join(words), REPEAT)[1] == repeats, words


def test_every_reading_of_three_messages() -> None:
    """A second way to tell: a subset of the order was read; what is missing before its last is passed over."""
    for read in product((False, True), repeat=3):
        handed = [at for at in (1, 2, 3) if read[at - 1]]
        missing = [at for at in (1, 2, 3) if handed and at < handed[-1] and at not in handed]
        rows = "sA sB p1 p2 p3 B1 B2 B3 " + " ".join(f"A{at}" for at in handed)
        assert judged(rows)[1] == len(missing), rows
