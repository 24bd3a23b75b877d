"""What is explored of a session store: small worlds, each with what its writers save and how often the rest may happen."""

from __future__ import annotations

from dataclasses import dataclass

from orderlab.model.contracts.session.steps import Publication, Save


@dataclass(frozen=True)
class Scope:
    """How small the world is: what each writer saves in order, and how often the rest may happen on one path."""

    name: str
    programs: tuple[tuple[Save, ...], ...]
    pages: tuple[int | None, ...] = (None,)
    waits: int = 0
    clears: int = 0
    repeats: int = 0
    faults: int = 0
    overlaps: bool = False
    drains: bool = False
    """From every state, whether the queue drains and settles; that leads nowhere."""


def message(label: int, interval_ms: float | None = None, qos: int = 1, payload: bytes | None = None) -> Publication:
    """A message of a scope."""
    return Publication(label, b"<%d>payload" % label if payload is None else payload, b"t", qos, interval_ms)


def save(producer: int, *messages: Publication, limit: int = 2) -> Save:
    """A save of a scope."""
    return Save(messages, producer=producer, limit=limit)


SCOPES: tuple[Scope, ...] = (
    Scope(
        "identifiers",
        (
            (save(0, message(1)), save(0, message(2)), save(0, message(3))),
            (save(1, message(4)), save(1, message(5), limit=3)),
        ),
    ),
    Scope(
        "time",
        (
            (save(0, message(1, 2000)), save(0, message(2))),
            (save(1, message(3, 1000)), save(1, message(4, 40_000))),
        ),
        waits=3,
    ),
    Scope(
        "drains",
        ((save(0, message(1, 1000)), save(0, message(2, 1000), limit=3)), (save(1, message(3), limit=3),)),
        pages=(1,),
        waits=2,
        drains=True,
    ),
    Scope(
        "faults",
        (
            (save(0, message(1, None, 2), message(2, 1000)), save(0, message(3))),
            (save(1, message(4, 0), message(5)),),
        ),
        waits=1,
        clears=1,
        repeats=1,
        faults=1,
    ),
    Scope(
        "sessions",
        ((save(0, message(1)), save(0, message(2))), (save(1, message(3)),)),
        clears=2,
        repeats=2,
    ),
    Scope(
        "pages",
        (
            (save(0, message(1), message(2), limit=3), save(0, message(3), limit=3)),
            (save(1, message(4), message(5), limit=3),),
        ),
        pages=(1, 2),
        waits=0,
    ),
    Scope(
        "releases",
        ((save(0, message(1, 2000, 2)), save(0, message(2))), (save(1, message(3, None, 2), message(4, 1000)),)),
        waits=2,
    ),
    Scope(
        "values",
        (
            (save(0, message(1), message(2, 0), message(3, 1000), limit=3), save(0, message(4, 0), message(5))),
            (save(1, message(6, 4294967295000), message(7, 2147483648000)), save(1, message(8), limit=1)),
        ),
        waits=1,
    ),
    Scope(
        "forbidden",
        (
            (save(0, message(1), message(2, 1500), limit=3), save(0, message(3, -1000), message(4))),
            (save(1, message(5), message(6, 1e19)), save(1, message(7), limit=0)),
        ),
    ),
    Scope(
        "overlaps",
        ((save(0, message(1)), save(0, message(2))), (save(1, message(3)), save(1, message(4)))),
        overlaps=True,
    ),
)
"""What is explored, the most telling first."""
