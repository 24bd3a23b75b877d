"""A session store whose keyspace is a value: what an operation does to a keyspace is found out once and remembered.

An operation depends on nothing but the keyspace, the moment, its fields and the fault that it meets. The explorer asks
for the same ones again and again, out of states that differ in what readers and writers know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import inf
from typing import Any

from orderlab.model.contracts.client_steps import Fault
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.backends.backend import Valued
from orderlab.sim.redis.lua.host import LuaHost
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.stores.binding.binding import NEW, OLD, Binding
from orderlab.sim.stores.binding.results import Fields, Result
from orderlab.sim.stores.bound import EVERYTHING, SAMPLE, BoundStore, BudgetExceeded, Interruption
from orderlab.sim.stores.trace_faults import condition

LARGE = 2_500
"""Members of a keyspace that a sound store does not come to in a search: a batch of those that only pass, thrice."""
Frozen = tuple[tuple[bytes, Any], ...]


def members_of(entry: tuple[str, Any, int | None]) -> int:
    """Of one key, as it is frozen: what a list holds, or the part of another value that holds the most."""
    held = entry[1]
    if not isinstance(held, tuple):
        return 1
    return max(len(held), *(len(part) for part in held if isinstance(part, tuple)), 1)


class ValuedKernel(Valued, KernelBackend):
    """The kernel, as a value."""


def valued(binding: Binding, limits: Limits | None) -> Valued:
    """What carries the operations of a store out."""
    if binding.tables is not None:
        from orderlab.sim.stores.tables import ValuedTables  # it takes a simulation with it

        return ValuedTables(binding)
    kernel = ValuedKernel(version=binding.server)
    if limits is not None:
        kernel.shard.lua_host = LuaHost(kernel.shard, limits)
    return kernel


class MemoStore(BoundStore):
    """``keyspace`` is the number of the keyspace that the store is in; assign it to go elsewhere. ``limits`` stop
    scripts soon: then it does not matter how many have to be stopped."""

    def __init__(self, binding: Binding, default_expiry_ms: int, limits: Limits | None = None) -> None:
        self.kernel = valued(binding, limits)
        self._numbers: dict[Frozen, int] = {}
        self.keyspaces: list[FrozenKeyspace] = []
        """By number."""
        self._operations: dict[Any, tuple[Result, int]] = {}
        self._listings: dict[tuple[int, int, bytes, str], Result] = {}
        self.struck_by: Fault | None = None
        """What befalls the next operation."""
        self.has_lost_scripts = False
        """The next operation finds a node that knows none of the scripts."""
        self.carried_left = inf
        """Members of large keyspaces (``LARGE``) that may still be noted; then BudgetExceeded is raised. Each operation
        on one copies all of it twice, and what is noted stays."""
        super().__init__(binding, self.kernel, default_expiry_ms)
        if limits is not None:
            self.endless_max = 1 << 31
        self.place = self._number_of({})

    @property
    def keyspace(self) -> int:
        """The number of the keyspace that the store is in, and of the version that serves, where there are two."""
        return self.place if len(self.versions) == 1 else 2 * self.place + (self.serving == NEW)

    @keyspace.setter
    def keyspace(self, number: int) -> None:
        if len(self.versions) > 1:
            self.serving = NEW if number % 2 else OLD
        self.go_to(number // len(self.versions))

    def go_to(self, number: int) -> None:
        """Be in the keyspace of that number, whichever version serves."""
        self.place = number
        self.kernel.value = self.keyspaces[number]

    def frozen(self, number: int) -> FrozenKeyspace:
        """The keyspace of that number."""
        return self.keyspaces[number // len(self.versions)]

    def _number_of(self, frozen: FrozenKeyspace) -> int:
        items = tuple(frozen.items())
        number = self._numbers.get(items)
        if number is None:
            size = sum(map(members_of, frozen.values()))
            if size > LARGE:
                self.carried_left -= size
                if self.carried_left < 0:
                    raise BudgetExceeded
            number = self._numbers[items] = len(self.keyspaces)
            self.keyspaces.append(frozen)
        return number

    def restart(self, now_ms: int) -> None:
        """An empty keyspace at the moment ``now_ms``."""
        self.serving = next(iter(self.versions))
        self.set_now(now_ms)
        self.go_to(self._number_of({}))

    def snapshot(self) -> int:
        """As of any store; a number is enough."""
        return self.keyspace

    def go_back(self, snapshot: int) -> None:
        """As of any store."""
        self.keyspace = snapshot

    def finds_scripts_again(self, client: bytes) -> bool:
        """Whether every operation does without loaded scripts what it does with them: tried on what the store holds.

        A server looks for a script before it runs anything, so once is enough.
        """
        at = self.place
        for operation in sorted(self.operations):
            fields: Fields = {"limit": self.limit, "messages": (SAMPLE,)} if operation == "save" else {}
            outcomes = []
            for self.has_lost_scripts in (False, True):
                outcomes.append((self.perform(operation, client, fields), self.place))
                self.go_to(at)
            if outcomes[0] != outcomes[1]:
                return False
        return True

    def forget(self) -> None:
        """Carry out again whatever is asked for next. Numbers of keyspaces stay."""
        self._operations.clear()
        self._listings.clear()

    def redis_deadlines_ms(self) -> Collection[int]:
        """Deadlines that Redis itself keeps for keys."""
        return [deadline for _, _, deadline in self.keyspaces[self.place].values() if deadline is not None]

    def perform(self, operation: str, client: bytes, fields: Fields, between: Interruption | None = None) -> Result:
        """As on any store; an operation that others interrupt is carried out anew."""
        if between is not None:
            return self._interrupted(operation, client, fields, between)
        lost, self.has_lost_scripts = self.has_lost_scripts, False
        asked = (self.place, self._now_ms, operation, client, tuple(fields.items()), self.struck_by, lost, self.serving)
        known = self._operations.get(asked)
        if known is None:
            self.kernel.load(self.keyspaces[self.place])
            if lost:
                self.kernel.execute(b"SCRIPT", b"FLUSH")
            with condition(self.kernel, self.struck_by) if self.struck_by else nullcontext():
                result = super().perform(operation, client, fields)
            known = self._operations[asked] = result, self._number_of(self.kernel.held())
        self.go_to(known[1])
        return known[0]

    def _interrupted(self, operation: str, client: bytes, fields: Fields, between: Interruption) -> Result:
        kernel = self.kernel

        def away(calls: int) -> None:
            self.go_to(self._number_of(kernel.held()))
            between(calls)
            kernel.load(self.keyspaces[self.place])

        kernel.load(self.keyspaces[self.place])
        result = super().perform(operation, client, fields, away)
        self.go_to(self._number_of(kernel.held()))
        return result

    def keep_up(self, what: str) -> None:
        """As on any store."""
        self.kernel.load(self.keyspaces[self.place])
        self.kernel.keep_up(what)
        self.go_to(self._number_of(self.kernel.held()))

    def acknowledge_all(self, client: bytes, fields: Sequence[Fields]) -> None:
        """Many acknowledgements, each remembered like any other."""
        for one in fields:
            self.perform("acknowledge", client, one)

    def listing(self, client: bytes) -> Result:
        """A fetch of everything, after which the store is as it was."""
        asked = (self.place, self._now_ms, client, self.serving)
        listed = self._listings.get(asked)
        if listed is None:
            before = self.place
            listed = self._listings[asked] = self.perform("fetch", client, {"count": EVERYTHING, "after": 0})
            self.go_to(before)
        return listed

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Whatever is done within leaves no trace."""
        before = self.place
        try:
            yield
        finally:
            self.go_to(before)

    @contextmanager
    def under(self, fault: Fault, operation: str, client: bytes, fields: Fields) -> Iterator[None]:
        """Have the node, or the client, be as ``fault`` says within this context."""
        self.struck_by = None if fault.kind == "client-dies" else fault
        try:
            yield
        finally:
            self.struck_by = None
