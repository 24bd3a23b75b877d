"""Two session stores side by side: every step is taken on both, and what differs is noted where it first differs.

A state of the search is the pair of keyspaces. As long as no reply differs, callers cannot differ either: what they ask
next is a function of the replies. Keys are compared where both held the same before the operation: what a layout of its
own leads to is told once, where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from orderlab.model.contracts.base import Discrepancy
from orderlab.model.contracts.session.traces import PRODUCERS, Interleave, Step
from orderlab.properties.comparison.differences import REPLY, first_difference, short
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.properties.contracts.session.run import StepReport
from orderlab.properties.contracts.session.subject import DEFAULT_EXPIRY_MS, SMALL_LIMITS, Subject
from orderlab.properties.contracts.session.witness.explanation import tell
from orderlab.properties.engine.memory import Interned
from orderlab.sim.redis.backends.backend import FIRST_MS
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.lua_text import scale
from orderlab.sim.stores.binding.results import Failed, Fields, Result
from orderlab.sim.stores.bound import EVERYTHING, Interruption, TimedOut, keeps_sent
from orderlab.sim.stores.memo import MemoStore

CARRIED = 1_000_000
"""Members of large keyspaces that a comparison notes of each store on the scripts as they are: where what has passed
stays in keys, a round of all identifiers would take ten times as many."""


class Noted(NamedTuple):
    """One difference, in words."""

    kind: str
    text: str


def _of_replies(operation: str, mine: Result, theirs: Result) -> str:
    """Both replies in words; as values, where words do not tell them apart."""
    new, old = (told(one) if isinstance(one, Failed) else f"'{tell(one)}'" for one in (mine, theirs))
    if new == old:
        new, old = told(mine), told(theirs)
    return f"{operation} replies {short(new)}; the old one {short(old)}"


def told(result: Result) -> str:
    """What a client learns from a result."""
    if isinstance(result, Failed) and not isinstance(result, TimedOut):
        return f"error {result.error.split(b' ', 1)[0].decode('latin-1')}"
    return repr(result)


class ComparedStore(MemoStore):
    """The new store, with the old one beside it. ``differences`` are those of the operations since it was cleared."""

    def __init__(self, binding: Binding, other: MemoStore) -> None:
        self.other = other
        self.differences: list[Noted] = []
        self._pairs: Interned[tuple[int, int]] = Interned()
        self._alike: dict[tuple[int, int], bool] = {}
        self._listings_of_both: dict[tuple[int, int, bytes], tuple[Result, list[Noted]]] = {}
        super().__init__(binding, DEFAULT_EXPIRY_MS)

    @property
    def keyspace(self) -> int:
        """The number of the pair of keyspaces that the two are in."""
        return self._pairs.number((self.place, self.other.place))

    @keyspace.setter
    def keyspace(self, number: int) -> None:
        mine, theirs = self._pairs[number]
        self.go_to(mine)
        self.other.go_to(theirs)

    def frozen(self, number: int) -> FrozenKeyspace:
        """The keyspace of this store in that pair."""
        return super().frozen(self._pairs[number][0])

    def restart(self, now_ms: int) -> None:
        """Both empty at the moment ``now_ms``."""
        super().restart(now_ms)
        self.other.restart(now_ms)

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """The new store's result; what the old one does otherwise is noted."""
        other = self.other
        other.set_now(self._now_ms)
        other.struck_by, other.has_lost_scripts = self.struck_by, self.has_lost_scripts
        were_alike = self._holds_alike()
        try:
            mine = super().perform(operation, client, fields, between)
        finally:
            theirs = other.perform(operation, client, fields, between)
        if told(mine) != told(theirs):
            self.differences.append(Noted(REPLY, _of_replies(operation, mine, theirs)))
        elif were_alike and not self._holds_alike():
            found = first_difference(*self._both_hold())  # in words, which of thousands of members are long
            if found is not None:
                kind, text = found
                self.differences.append(Noted(kind, f"{operation} leaves {text}"))
        return mine

    def _both_hold(self) -> tuple[FrozenKeyspace, FrozenKeyspace]:
        return super().frozen(self.place), self.other.frozen(self.other.place)

    def _holds_alike(self) -> bool:
        """Whether no key differs between the two."""
        pair = self.place, self.other.place
        if pair not in self._alike:
            mine, theirs = self._both_hold()
            self._alike[pair] = mine == theirs
        return self._alike[pair]

    def set_default_expiry(self, ms: int) -> None:
        """Set the default interval of both stores."""
        super().set_default_expiry(ms)
        self.other.set_default_expiry(ms)

    def run_again(self) -> None:
        """Run the last call once more on both stores."""
        super().run_again()
        self.other.run_again()

    def finds_scripts_again(self, client: bytes) -> bool:
        """As of the new one, after which both are as they were."""
        with self.aside():
            return super().finds_scripts_again(client)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Whatever is done within leaves no trace in either, and what differs in it is not told."""
        before, noted = self.keyspace, list(self.differences)
        try:
            yield
        finally:
            self.keyspace, self.differences = before, noted

    def listing(self, client: bytes) -> Result:
        """A fetch of everything, after which both are as they were; a difference in it is one that clients would
        see."""
        asked = self.keyspace, self._now_ms, client
        if asked not in self._listings_of_both:
            before, noted = self.keyspace, len(self.differences)
            result = self.perform("fetch", client, {"count": EVERYTHING, "after": 0})
            self.keyspace = before
            seen = [
                one._replace(text=f"afterwards {one.text}") for one in self.differences[noted:] if one.kind == REPLY
            ]
            self.differences = self.differences[:noted]
            self._listings_of_both[asked] = result, seen
        result, seen = self._listings_of_both[asked]
        self.differences += seen
        return result


class ComparedRun(SessionRun):
    """A run on both stores. Differences are told as discrepancies, by their kind in place of a law."""

    store: ComparedStore

    def perform(self, step: Step) -> StepReport:
        """As any run. After a reply that differs nothing is compared any more."""
        self.store.differences.clear()
        if isinstance(step, Interleave):
            # The two need not make the same calls: what comes between those of one is no step of both.
            return StepReport(step)
        report = super().perform(step)
        if report.result is not None:
            for one in self.store.differences:
                report.discrepancies.append(Discrepancy(one.kind, one.text, one.kind == REPLY))
                if one.kind == REPLY:
                    break
        return report


@dataclass
class ComparedSubject(Subject):
    """The new store under comparison with the ``old`` one."""

    old: Binding | None = None
    _store: ComparedStore | None = None

    @property
    def store(self) -> ComparedStore:
        """Both stores, each on a kernel of its own."""
        if self._store is None:
            assert self.old is not None
            limits = SMALL_LIMITS if self.rewritten else None
            other = MemoStore(self.old, DEFAULT_EXPIRY_MS, limits)
            other.cpu_budget = self.cpu_budget
            self._store = ComparedStore(self.binding, other)
            self._store.cpu_budget = self.cpu_budget
            kept = keeps_sent(self._store)
            self._store.capabilities = self._store.capabilities._replace(keeps_sent=kept)
            other.capabilities = self._store.capabilities
            if not self.rewritten:
                self._store.carried_left = other.carried_left = CARRIED
        return self._store

    @property
    def memo(self) -> ComparedStore:
        """Both stores: what either does is remembered."""
        return self.store

    def bare_run(self, clients: Sequence[bytes], producers: tuple[bytes, ...] = PRODUCERS) -> SessionRun:
        """As of any subject, on both stores."""
        self.store.restart(FIRST_MS)
        return ComparedRun(self.store, clients, producers)

    def scaled(self, modulus: int, remembers: bool = True) -> ComparedSubject:
        """Both with packet identifiers 1..``modulus``."""
        assert self.old is not None
        binding, rewritten = scale(self.binding, modulus)
        old, _ = scale(self.old, modulus)
        return replace(
            self, binding=binding, old=old, rewritten=rewritten, remembers=remembers, _store=None, _baseline={}
        )
