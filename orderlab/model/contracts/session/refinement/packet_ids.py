"""What packet identifiers and tokens of one batch break: where the counter of a session can be, and what it skipped."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.refinement.account import name_of
from orderlab.model.contracts.session.spec import next_packet_id


class Assigned(NamedTuple):
    """One message of a batch, in its order."""

    label: int
    packet_id: int | None
    """None if nobody told."""
    is_dead: bool
    """It had expired on arrival."""
    stays: bool
    """It is still live after the save: the batch may be larger than the limit."""

    @property
    def may_need_none(self) -> bool:
        """Whether it may have used no identifier: nobody was told one, and it lives at no moment that anyone sees."""
        return self.packet_id is None and (self.is_dead or not self.stays)


def successors(last: int, may_skip: Collection[int], live: Collection[int], modulus: int) -> set[int]:
    """The identifiers that may follow ``last`` when those of ``may_skip`` and ``live`` can be passed over."""
    found: set[int] = set()
    candidate = next_packet_id(last, modulus)
    while candidate not in found:
        found.add(candidate)
        if candidate not in may_skip and candidate not in live:
            break
        candidate = next_packet_id(candidate, modulus)
    return found


def judge_identifiers(
    last_ids: frozenset[int],
    assigned: Sequence[Assigned],
    taken: Collection[int],
    may_skip: Collection[int],
    modulus: int,
) -> tuple[frozenset[int], list[Discrepancy]]:
    """Follow the counter through one batch: where it can be now, and what was wrong.

    ``taken`` are the identifiers of older messages that are still live.
    """
    possible = set(last_ids)
    live, hidden = set(taken), set(may_skip)
    found: list[Discrepancy] = []
    reachable: set[int] = set()
    fresh = set(possible)  # those whose successors are not among the reachable ones yet
    for one in assigned:
        further = set().union(*(successors(last, hidden, live, modulus) for last in fresh)) - reachable
        reachable |= further
        if one.may_need_none:
            hidden |= further
            fresh = further - possible
            possible |= fresh
            continue
        if one.packet_id is None:
            hidden |= reachable
            possible = reachable - live or reachable
        else:
            found += _judge_one(one.label, one.packet_id, possible, reachable, live, modulus)
            (live if one.stays else hidden).add(one.packet_id)
            possible = {one.packet_id}
        reachable, fresh = set(), set(possible)
    return frozenset(possible), found


def _judge_one(
    label: int, packet_id: int, possible: set[int], reachable: set[int], live: set[int], modulus: int
) -> list[Discrepancy]:
    given = f"{name_of(label)} gets packet identifier {packet_id}"
    found: list[Discrepancy] = []
    if not 1 <= packet_id <= modulus:
        return [Discrepancy("packet-id", f"{given}, which is not in 1..{modulus}")]
    if packet_id in live:
        found.append(Discrepancy("packet-id", f"{given}, which a live message has"))
    if packet_id not in reachable:
        last = "/".join(map(str, sorted(possible)))
        found.append(Discrepancy("counter", f"{given} after {last}"))
        if possible == {modulus}:
            found.append(Discrepancy("packet-id", f"{given}: after {modulus} comes 1"))
    return found


def judge_tokens(last: int, assigned: Sequence[tuple[int, int | None]]) -> tuple[int, list[Discrepancy]]:
    """Tokens of one batch, as far as they are told, must go on growing: the highest one now, and what was wrong.

    0 stands for a message that was not kept.
    """
    found: list[Discrepancy] = []
    for label, token in assigned:
        if token is None or token == 0:
            continue
        if token <= last:
            found.append(Discrepancy("counter", f"{name_of(label)} gets sequence {token} after {last}"))
        last = max(last, token)
    return last, found
