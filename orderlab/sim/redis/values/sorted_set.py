"""A sorted set: members by score, then by bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import copysign
from typing import Any

from orderlab.sim.redis.config import EncodingLimits
from orderlab.sim.redis.values.hash_order import add_in_hash_order, in_hash_order, remove_from_hash_order

Score = Any
"""A float. Not declared so: machine code would take the number out of its object, which the dictionary and the table
share."""
Undo = list[tuple[Any, ...]]
FrozenSortedSet = tuple[str, tuple[tuple[float, bytes], ...], tuple[bytes, ...]]
"""Encoding; (score, member) in order; the members whose zero is negative, because -0.0 == 0.0."""


def by_score(scores: dict[bytes, float]) -> list[bytes]:
    """The members in the order of a sorted set."""
    members = sorted(scores)
    members.sort(key=scores.__getitem__)
    return members


class SortedSet:
    """``scores`` answers by member; ``order_scores`` and ``order_members`` are the two columns of the sorted table.

    Two parallel lists share the objects of the dictionary: 16 bytes an entry where a list of pairs takes 72, and
    bisection compares bare floats. The queues of most clients hold one message: a first member is kept by itself, until
    something asks for the others.
    """

    __slots__ = ("_order_members", "_order_scores", "_scores", "hash_order", "only", "only_score", "skiplist")

    def __init__(self) -> None:
        self.only: bytes | None = None
        """The one member, with ``only_score``, while there is no table."""
        self.only_score: Score = None
        self._scores: dict[bytes, Score] | None = None
        self._order_scores: list[Score] | None = None
        self._order_members: list[bytes] | None = None
        self.skiplist = False
        """Whether it has outgrown the listpack encoding; never goes back."""
        self.hash_order: list[bytes] | None = None
        """The order of ZSCAN, from the first scan on."""

    def __len__(self) -> int:
        scores = self._scores
        if scores is None:
            return 0 if self.only is None else 1
        return len(scores)

    @property
    def scores(self) -> dict[bytes, Score]:
        """The scores by member."""
        if self._scores is None:
            self._unfold()
        assert self._scores is not None
        return self._scores

    @property
    def order_scores(self) -> list[Score]:
        """In order."""
        if self._order_scores is None:
            self._unfold()
        assert self._order_scores is not None
        return self._order_scores

    @property
    def order_members(self) -> list[bytes]:
        """In the order of ``order_scores``."""
        if self._order_members is None:
            self._unfold()
        assert self._order_members is not None
        return self._order_members

    def _unfold(self) -> None:
        member = self.only
        self._hold(
            {} if member is None else {member: self.only_score},
            [] if member is None else [self.only_score],
            [] if member is None else [member],
        )

    def _hold(self, scores: dict[bytes, Score], order_scores: list[Score], order_members: list[bytes]) -> None:
        self._scores, self._order_scores, self._order_members = scores, order_scores, order_members
        self.only = self.only_score = None

    @property
    def encoding(self) -> bytes:
        """As OBJECT ENCODING names it."""
        return b"skiplist" if self.skiplist else b"listpack"

    def position(self, score: Score, member: bytes) -> int:
        """Where (score, member) stands, or would stand."""
        scores = self.order_scores
        at = bisect_left(scores, score)
        if at < len(scores) and scores[at] == score and self.order_members[at] != member:
            return bisect_left(self.order_members, member, at, bisect_right(scores, score, at))
        return at

    def rank(self, member: bytes) -> int | None:
        """The position of ``member``, or None."""
        score = self.scores.get(member)
        return None if score is None else self.position(score, member)

    # -- mutators: each appends its inverse to ``undo``, if there is one -------------------------------------

    def insert(self, member: bytes, score: Score, undo: Undo | None) -> None:
        """Add a member that is not there."""
        if undo is not None:
            undo.append((self.discard, member, None))
        if score == 0 and not self.skiplist:
            score = 0.0  # a listpack keeps whole scores as integers, which have no negative zero
        if self.only is None and self._scores is None:
            self.only, self.only_score = member, score
        else:
            self.scores[member] = score
            scores = self.order_scores
            if not scores or scores[-1] < score:
                scores.append(score)
                self.order_members.append(member)
            else:
                at = self.position(score, member)
                scores.insert(at, score)
                self.order_members.insert(at, member)
        if self.hash_order is not None:
            add_in_hash_order(self.hash_order, member)

    def move(self, member: bytes, old: Score, score: Score, undo: Undo | None) -> None:
        """Give a member that stands at ``old`` another score."""
        if undo is not None:
            undo.append((self.move, member, score, old, None))
        if not self.skiplist:
            score += 0.0
        self.scores[member] = score
        at = self.position(old, member)
        del self.order_scores[at]
        del self.order_members[at]
        at = self.position(score, member)
        self.order_scores.insert(at, score)
        self.order_members.insert(at, member)

    def discard(self, member: bytes, undo: Undo | None) -> bool:
        """Remove ``member``; True if it was there."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        if undo is not None:
            undo.append((self.insert, member, score, None))
        at = self.position(score, member)
        del self.order_scores[at]
        del self.order_members[at]
        if self.hash_order is not None:
            remove_from_hash_order(self.hash_order, member)
        return True

    def remove_slice(self, start: int, stop: int, undo: Undo | None) -> None:
        """Remove the members of rank ``start`` up to, not including, ``stop``."""
        members = self.order_members[start:stop]
        if undo is not None:
            undo.append((self._put_slice_back, start, members, self.order_scores[start:stop]))
        del self.order_scores[start:stop]
        del self.order_members[start:stop]
        scores = self.scores
        for member in members:
            del scores[member]
        self.hash_order = None

    def make_room(self, member: bytes, limits: EncodingLimits, undo: Undo | None) -> None:
        """Leave the listpack encoding if this new member asks for it."""
        if len(self) < limits.zset_max_listpack_entries and len(member) <= limits.zset_max_listpack_value:
            return
        if undo is not None:
            undo.append((setattr, self, "skiplist", False))
        self.skiplist = True

    def _put_slice_back(self, start: int, members: list[bytes], scores: list[float]) -> None:
        self.order_scores[start:start] = scores
        self.order_members[start:start] = members
        self.scores.update(zip(members, scores, strict=True))
        self.hash_order = None

    # -- ranges ------------------------------------------------------------------------------------------

    def score_slice(self, low: float, low_open: bool, high: float, high_open: bool) -> tuple[int, int]:
        """Ranks ``start, stop`` of the scores between ``low`` and ``high``; an open end leaves its bound out."""
        scores = self.order_scores
        start = bisect_right(scores, low) if low_open else bisect_left(scores, low)
        stop = bisect_left(scores, high) if high_open else bisect_right(scores, high)
        return start, max(start, stop)

    def scan_order(self) -> list[bytes]:
        """All members in hash order; not to be changed by the caller."""
        if self.hash_order is None:
            self.hash_order = in_hash_order(self.scores)
        return self.hash_order

    # -- values ------------------------------------------------------------------------------------------

    def freeze(self) -> FrozenSortedSet:
        """The value as a hashable tuple, equal for equal sorted sets and for no others."""
        entries = tuple(zip(self.order_scores, self.order_members, strict=True))
        if not self.skiplist:
            return "listpack", entries, ()
        start, stop = self.score_slice(0.0, False, 0.0, False)
        negative = tuple(member for score, member in entries[start:stop] if copysign(1.0, score) < 0)
        return "skiplist", entries, negative

    @classmethod
    def thaw(cls, frozen: FrozenSortedSet) -> SortedSet:
        """The sorted set that ``freeze`` gave ``frozen`` for."""
        encoding, entries, negative_zeros = frozen
        value = cls()
        value.skiplist = encoding == "skiplist"
        scores, members = [score for score, _ in entries], [member for _, member in entries]
        if negative_zeros:
            chosen = set(negative_zeros)
            scores = [score if score else -0.0 if member in chosen else 0.0 for score, member in entries]
        value._hold(dict(zip(members, scores, strict=True)), scores, members)
        return value

    @classmethod
    def of(cls, scores: dict[bytes, float], limits: EncodingLimits) -> SortedSet:
        """A new sorted set of ``scores`` (taken over, not copied) in the encoding that its size asks for."""
        value = cls()
        longest = limits.zset_max_listpack_value
        value.skiplist = len(scores) > limits.zset_max_listpack_entries or any(len(m) > longest for m in scores)
        if not value.skiplist:
            scores = {member: score + 0.0 for member, score in scores.items()}
        members = by_score(scores)
        value._hold(scores, [scores[member] for member in members], members)
        return value

    def copy(self) -> SortedSet:
        """An independent equal value."""
        value = SortedSet()
        value._hold(self.scores.copy(), self.order_scores.copy(), self.order_members.copy())
        value.skiplist = self.skiplist
        return value
