"""Two stores side by side: does a client ever see which of them it has?

A mutant may leave other keys than the original and still answer every client alike: a hint in a head that is set too
cautiously costs a call and changes no reply. So both are taken through the same steps, each on a keyspace of its own,
and a state of the search is the pair of keyspaces. As long as no reply differs, callers cannot differ either: what they
ask next is a function of the replies. If none differs on any path of the scope, no client within the scope can tell the
two apart, whatever the keys hold (a bisimulation on pairs, found by going forward). Errors are alike when their codes
are; their words are for people. How much work a reply cost is not compared: that is the law ``bounded``.
"""

from __future__ import annotations

from orderlab.model.contracts.session.contract import SCOPES
from orderlab.model.laws import STORE_LAWS
from orderlab.properties.contracts.session.subject import DEFAULT_EXPIRY_MS, Subject
from orderlab.properties.contracts.session.validation.exploration import applies, explore_scope, fitted
from orderlab.properties.contracts.session.validation.scenarios import run_scenarios
from orderlab.properties.contracts.session.validation.walks import walk_about
from orderlab.properties.validation.findings import Findings
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import Binding
from orderlab.sim.stores.binding.results import Failed, Fields, Result
from orderlab.sim.stores.bound import EVERYTHING, Interruption, TimedOut
from orderlab.sim.stores.memo import MemoStore

STATES_MAX = 300
"""Pairs of keyspaces in each scope."""
WALKS = 80


class Different(Exception):
    """A client can tell the two apart; says how."""


class ProductStore(MemoStore):
    """A store that does everything on another one as well. Raises Different at the first reply that differs."""

    def __init__(self, binding: Binding, other: MemoStore) -> None:
        self.other = other
        self._pairs: dict[tuple[int, int], int] = {}
        self._both: list[tuple[int, int]] = []
        self._listed: dict[tuple[int, int, bytes], Result] = {}
        super().__init__(binding, DEFAULT_EXPIRY_MS)

    @property
    def keyspace(self) -> int:
        """The number of the pair of keyspaces that the two are in."""
        pair = self._at, self.other._at
        number = self._pairs.setdefault(pair, len(self._both))
        if number == len(self._both):
            self._both.append(pair)
        return number

    @keyspace.setter
    def keyspace(self, number: int) -> None:
        mine, theirs = self._both[number]
        self._go(mine)
        self.other._go(theirs)

    def frozen(self, number: int) -> FrozenKeyspace:
        """The keyspace of this store in that pair."""
        return super().frozen(self._both[number][0])

    def restart(self, now_ms: int) -> None:
        """Both empty at the moment ``now_ms``."""
        super().restart(now_ms)
        self.other.restart(now_ms)

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """The result of both."""
        other = self.other
        other.set_now(self._now_ms)
        other._fault, other.has_lost_scripts = self._fault, self.has_lost_scripts
        theirs = other.perform(operation, client, fields)
        mine = super().perform(operation, client, fields)
        if told(mine) != told(theirs):
            shown = {name: value for name, value in fields.items() if name != "messages"}
            raise Different(f"{operation} {shown}: replies {told(mine)[:160]}; the original {told(theirs)[:160]}")
        return mine

    def listing(self, client: bytes) -> Result:
        """A fetch of everything, after which both are as they were."""
        before = self.keyspace
        asked = before, self._now_ms, client
        if asked not in self._listed:
            self._listed[asked] = self.perform("fetch", client, {"count": EVERYTHING, "after": 0})
            self.keyspace = before
        return self._listed[asked]


def told(result: Result) -> str:
    """What a client learns from a result."""
    if isinstance(result, Failed) and not isinstance(result, TimedOut):
        return f"error {result.error.split(b' ', 1)[0].decode('latin-1')}"
    return repr(result)


def difference_to_clients(
    original: Binding, mutated: Binding, modulus: int, states_max: int = STATES_MAX, walks: int = WALKS
) -> str:
    """The first reply of ``mutated`` that is not the original's in scenarios, walks and scopes of a small world; or
    nothing.

    For stores whose operations are single calls: between the calls of one that takes several, others could come.
    """
    if any(not bound.is_atomic for bound in original.operations.values()):
        return "operations of several calls are not compared by their replies"
    ours = Subject(original).scaled(min(modulus, original.modulus))
    small = Subject(mutated).scaled(min(modulus, original.modulus))
    other = MemoStore(ours.binding, DEFAULT_EXPIRY_MS)
    findings = Findings(frozenset(STORE_LAWS))
    try:
        small._store = ProductStore(small.binding, other)
        small._store.capabilities = ours.store.capabilities
        run_scenarios(small, findings)
        walk_about(small, findings, walks)
        for scope in SCOPES:
            if applies(scope, small):
                explore_scope(small, fitted(scope, small), findings, states=states_max)
    except Different as difference:
        return str(difference)
    return ""
