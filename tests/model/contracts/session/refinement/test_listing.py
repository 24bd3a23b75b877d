"""A listing against the queue that it should show: each difference beside its nearest neighbour that is none."""

from __future__ import annotations

import pytest

from orderlab.model.contracts.session.refinement import Account, ObservedMessage
from orderlab.model.contracts.session.refinement.listing import compare, interval_wrong
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry, Session

NOW_MS = 10_000


def entry(label: int, deadline_ms: int = FOREVER_MS, kind: str = "PUBLISH", carries: bool = True) -> Entry:
    return Entry(label, label, deadline_ms, deadline_ms, 2, kind, False, carries)  # type: ignore[arg-type]


ACCOUNT = Account(Session(now_ms=NOW_MS), fates=((7, "acknowledged"), (8, "expired"), (9, "cleared"), (6, "trimmed")))
QUEUE = (entry(1), entry(2), entry(3))


def seen(*labels: int | None) -> list[ObservedMessage]:
    return [ObservedMessage(label, label) for label in labels]


def laws(listing: list[ObservedMessage]) -> list[str]:
    return sorted({one.law for one in compare(ACCOUNT, QUEUE, listing, ("no-loss",))})


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (seen(1, 2, 3), []),
        (seen(1, 3), ["no-loss"]),
        (seen(1, 3, 2), ["store-order"]),
        (seen(1, 2, 2, 3), ["store-order"]),
        (seen(1, 2, 3, 7), ["packet-id"]),
        (seen(1, 2, 3, 8), ["expiry"]),
        (seen(1, 2, 3, 9), ["no-phantom", "no-residue"]),
        (seen(6, 1, 2, 3), ["legal-trim"]),
        (seen(1, 2, 3, None), ["no-phantom"]),
        (seen(1, 2, 3, 4), ["no-phantom"]),
        ([ObservedMessage(1, 5), *seen(2, 3)], ["packet-id"]),
        ([ObservedMessage(1, None), *seen(2, 3)], []),
        ([ObservedMessage(1, 1, "PUBREL"), *seen(2, 3)], ["retransmission"]),
        ([ObservedMessage(1, 1, altered="topic"), *seen(2, 3)], ["no-phantom"]),
    ],
)
def test_each_difference_breaks_its_law(listing: list[ObservedMessage], expected: list[str]) -> None:
    assert laws(listing) == expected


@pytest.mark.parametrize(
    ("deadline_ms", "told", "is_right"),
    [
        (12_000, 2000, True),
        (12_000, 1999, False),
        (12_000, 2001, False),
        (12_000, 3000, False),
        (12_500, 2500, True),
        (12_500, 2000, True),
        (12_500, 3000, True),
        (12_500, 2499, False),
        (12_500, 1000, False),
        (FOREVER_MS, None, True),
        (FOREVER_MS, 5, False),
        (12_000, None, False),
        (NOW_MS, None, True),
    ],
)
def test_the_interval_left_is_exact_up_to_whole_seconds(deadline_ms: int, told: float | None, is_right: bool) -> None:
    wrong = interval_wrong(entry(1, deadline_ms), ObservedMessage(1, 1, remaining_ms=told), NOW_MS)
    assert (wrong == "") is is_right


def test_only_a_message_that_came_with_an_interval_must_tell_it() -> None:
    assert interval_wrong(entry(1, 12_000, carries=False), ObservedMessage(1, 1), NOW_MS) == ""
    assert interval_wrong(entry(1, 12_000, "PUBREL"), ObservedMessage(1, 1, "PUBREL"), NOW_MS) == ""
    assert interval_wrong(entry(1, 12_000, carries=False), ObservedMessage(1, 1, remaining_ms=5000), NOW_MS)
