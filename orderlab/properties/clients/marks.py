"""What client code says of itself: ``at("critical", most=1)``, ``at.once(job)``, ``at.produced(x)``, ..."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from orderlab.model.contracts.base import Contract
from orderlab.model.errors import InputError
from orderlab.properties.clients.execution import Execution
from orderlab.properties.clients.history import OperationHistory
from orderlab.properties.clients.lane import Lane, Op


class MarkViolation(Exception):
    """A mark was not met: law, and what happened."""

    def __init__(self, law: str, what: str) -> None:
        super().__init__(what)
        self.law, self.what = law, what


class Marks:
    """What the clients of one execution have marked."""

    def __init__(self, execution: Execution, contract: Contract | None = None) -> None:
        self.execution = execution
        self.history = OperationHistory(contract, execution, self.violate) if contract is not None else None
        self.inside: dict[str, list[str]] = {}
        self.done: dict[str, int] = defaultdict(int)
        self.produced: dict[str, int] = defaultdict(int)
        self.consumed: dict[str, int] = defaultdict(int)
        self.at_end: dict[Any, Callable[..., Any]] = {}
        self.invariants: dict[Any, Callable[..., Any]] = {}
        self.checks_always: Callable[[], None] | None = None
        """Asks them; the execution does it after each step that writes, once there are some."""
        self.used: set[str] = set()
        self.violation: MarkViolation | None = None

    def violate(self, law: str, what: str) -> None:
        """Note the first violation."""
        self.violation = self.violation or MarkViolation(law, what)

    def enter(self, name: str, lane: Lane, most: int) -> None:
        """A lane comes in."""
        alive = self.execution.lanes
        holders = [each for each in self.inside.get(name, ()) if not alive[each].is_killed]
        self.inside[name] = [*holders, lane.name]
        if len(self.inside[name]) > most:
            who = ", ".join(f"client {each}" for each in self.inside[name])
            self.violate(f"at-most-{most}", f"{who} are in {name!r} at once; at most {most} may be")

    def leave(self, name: str, lane: Lane) -> None:
        """A lane goes."""
        if lane.name in self.inside.get(name, ()):
            self.inside[name].remove(lane.name)


class ClientMarks:
    """The marks of one client."""

    def __init__(self, marks: Marks, number: int) -> None:
        self._marks = marks
        self.client = number
        """The number of this client, from 0."""

    @contextmanager
    def __call__(self, name: str, most: int = 1) -> Iterator[None]:
        """Within it at most ``most`` clients are at once."""
        marks, execution = self._marks, self._marks.execution
        marks.used.add(f"at-most-{most}")
        lane = execution.lane
        assert lane is not None
        execution.pend(Op("mark", f"enters {name}"))
        execution.touched.writes.add(("mark", name))
        marks.enter(name, lane, most)
        try:
            yield
        finally:
            if not lane.is_killed and not execution.ending:
                execution.pend(Op("mark", f"leaves {name}"))
                execution.touched.writes.add(("mark", name))
                marks.leave(name, lane)

    def sleep(self, seconds: float) -> None:
        """Let virtual time go by, as ``time.sleep`` does."""
        execution = self._marks.execution
        execution.pend(Op("sleep", seconds, lambda: False, execution.now_us + round(seconds * 1e6)))

    def does(
        self,
        name: str,
        method: Callable[[], Any],
        /,
        *,
        reply: Callable[[Any], Any] | None = None,
        refused: type[BaseException] | tuple[type[BaseException], ...] = (),
        **fields: Any,
    ) -> Any:
        """Call ``method`` as the operation ``name`` of the scenario's oracle, with its fields. Returns what it returns.

        ``reply`` makes the contract's reply of that. ``refused``: exceptions that say no, which is the reply None.
        """
        history = self._marks.history
        if history is None:
            raise InputError(f"at.does({name!r}): the scenario names no contract; add oracle=... to @scenario")
        return history.does(name, method, reply, refused, fields)

    def once(self, item: Any) -> None:
        """``item`` is done at most once, by all clients together."""
        marks = self._marks
        marks.used.add("at-most-once")
        marks.done[repr(item)] += 1
        if marks.done[repr(item)] > 1:
            marks.violate("at-most-once", f"{item!r} is done twice")

    def produced(self, item: Any) -> None:
        """``item`` was handed over, and must be consumed once."""
        self._marks.used.update(("no-loss", "at-most-once"))
        self._marks.produced[repr(item)] += 1

    def consumed(self, item: Any) -> None:
        """``item`` was received."""
        marks = self._marks
        marks.used.update(("no-loss", "at-most-once"))
        marks.consumed[repr(item)] += 1
        if marks.consumed[repr(item)] > 1:
            marks.violate("at-most-once", f"{item!r} is consumed twice")

    def finally_(self, check: Callable[..., Any]) -> None:
        """When all clients have ended, ``check(redis)`` must not return False nor raise AssertionError."""
        self._marks.used.add("finally")
        self._marks.at_end.setdefault(getattr(check, "__code__", check), check)

    def always(self, check: Callable[..., Any]) -> None:
        """After every step ``check(redis)`` must not return False nor raise AssertionError."""
        marks, key = self._marks, getattr(check, "__code__", check)
        marks.used.add("always")
        if key not in marks.invariants:
            marks.invariants[key] = check
            marks.execution.checks_always = marks.checks_always
            marks.execution.touched.is_whole = True  # what comes before this step is not asked about
