"""What a schedule that is forced on a real server comes to, judged by what the clients do there one after the other.

The server is emptied before each run. What would be a violation is none where not every order of whole clients could
be tried: then it is undecided. See ``gate``: an exported test is the text of both.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import redis

from orderlab.properties.clients.executors import finished
from orderlab.properties.clients.gate import Lane, Run, ScheduledStep, as_lane, completed, current, installed
from orderlab.properties.clients.gate_marks import At, says_nothing
from orderlab.properties.clients.gate_tasks import tasks_installed
from orderlab.properties.clients.stillness import threads_alternate_often
from orderlab.properties.clients.whole_order import WholeOrder

ORDERS_S = 60.0
"""For how long orders of whole clients are tried, from the end of the first ``ORDERS_MIN``."""
ORDERS_MIN = 24
_NO_OUTCOME = re.compile(
    r"(?<!\d)(?:1[789]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?"
    r"|20\d\d-?\d\d-?\d\d[T ]?\d\d:?\d\d:?\d\d(?:[.,]\d+)?"
    r"|[A-Z][a-z]{2},? (?:\d+ [A-Z][a-z]{2} 20\d\d \d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d 20\d\d))(?!\d)"
    r"| at 0x[0-9a-f]+|127\.0\.0\.1:\d+"
)


NEAR_MS = 1000
"""Deadlines that lie nearer to each other are alike."""


class Ending(NamedTuple):
    """What is seen of a run when it is over."""

    ends: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    left_ms: tuple[int, ...] = ()
    """For how long those keys are still there; empty where the run took so long that this says nothing."""

    def is_like(self, other: Ending) -> bool:
        """Whether both end in the same way, as far as a clock that goes on can tell."""
        near = all(abs(mine - its) < NEAR_MS for mine, its in zip(self.left_ms, other.left_ms, strict=False))
        return near and self[:2] == other[:2]


class Judged(NamedTuple):
    """What a schedule came to on the server."""

    law: str
    """The law that was broken; empty: none."""
    what: str
    strayed: str
    """Where it went otherwise than the schedule says; empty: nowhere."""
    undecided: str = ""
    """Why the clients one after the other do not tell whether a law was broken; empty: they do."""


def carried_out(
    server: Any, scenario: Any, steps: Sequence[ScheduledStep] = (), order: WholeOrder | None = None,
    operations: Any = None,
) -> tuple[Run, Ending]:  # fmt: skip
    """Run the clients on the emptied server: one after the other in ``order`` where that is given, else along
    ``steps``."""
    server.flushall()
    server.script_flush()
    run = current.run = Run(server, steps, operations, order)
    began = time.monotonic()
    if scenario.setup is not None:
        with as_lane(Lane("setup", False)):
            completed(scenario.setup, At(run, -1))
    numbers = range(len(scenario.clients))
    for number in numbers if order is None else order.clients:
        run.begin(str(number), partial(_client, run, scenario.clients[number], number))
    run.await_end()
    ends = tuple(_end(run.lanes.get(str(number))) for number in numbers)
    run.is_free, run.order = True, None
    if "stuck" not in ends:
        for item, count in run.counts["produced"].items():
            if run.counts["consumed"][item] < count:
                run.violate("no-loss", f"{item} was produced, and nobody consumed it")
        for check in [*run.at_end.values(), *([scenario.finally_] if scenario.finally_ else [])]:
            run.ask("finally", check)
    keys = _keys(server)
    left_ms = tuple(int(server.pttl(key)) for key in sorted(server.keys()))
    run.close()
    current.run = None
    return run, Ending(ends, keys, left_ms if (time.monotonic() - began) * 1000 < NEAR_MS / 2 else ())


def _client(run: Run, function: Callable[..., Any], number: int) -> Any:
    result = completed(function, At(run, number))
    finished(run, str(number))
    return result


def _end(lane: Lane | None) -> str:
    if lane is None:
        return "None"
    if lane.error is not None:
        return f"raised {type(lane.error).__name__}"
    if lane.is_killed:
        return "killed"
    return _plain(lane.result) if lane.is_over else "stuck"


def _plain(value: Any) -> str:
    return _NO_OUTCOME.sub(
        "<...>", repr(sorted(value, key=repr)) if isinstance(value, (set, frozenset)) else repr(value)
    )


def _keys(server: Any) -> tuple[tuple[str, str], ...]:
    """Every key with its type, value and whether it has a deadline."""
    readers: dict[bytes, Callable[[Any], Any]] = {
        b"string": server.get,
        b"list": lambda key: server.lrange(key, 0, -1),
        b"set": lambda key: sorted(server.smembers(key)),
        b"zset": lambda key: server.zrange(key, 0, -1, withscores=True),
        b"hash": lambda key: sorted(server.hgetall(key).items()),
        b"stream": lambda key: [sorted(fields.items()) for _, fields in server.xrange(key)],
    }
    rows = []
    for key in sorted(server.keys()):
        kind = server.type(key)
        value = readers[kind](key) if kind in readers else None
        rows.append((repr(key), _plain((kind.decode(), value, server.pttl(key) >= 0))))
    return tuple(rows)


def judged(server: Any, scenario: Any, steps: Sequence[ScheduledStep], operations: Any = None) -> Judged:
    """Force a schedule on a server that holds nothing, and judge what comes of it by orders one after the other.

    ``operations``: makes what judges the operations of a contract (``gate.Run``).
    """
    with installed(), tasks_installed(), threads_alternate_often():
        run, ending = carried_out(server, scenario, steps, operations=operations)
        alone = OneByOne(server, scenario, operations)
        law, what = run.violation or _judged(alone, run, ending, steps) or ("", "")
    server.flushall()
    if run.operations is not None and run.operations.failure is not None:
        raise run.operations.failure
    if alone.undecided and law in BY_ORDERS:
        return Judged("", what, run.strayed, f"{alone.undecided}; it may be that {what}")
    return Judged(law, what, run.strayed)


BY_ORDERS = ("no-foreign-exception", "serializable")
"""Laws that are broken by what no order of whole clients does."""


class OneByOne:
    """How the clients end in each order of whole ones that comes to an end; an order is tried when it is asked for."""

    def __init__(self, server: Any, scenario: Any, operations: Any = None, absent: Sequence[int] = ()) -> None:
        self.server, self.scenario, self.operations = server, scenario, operations
        self.undecided = ""
        """Why not every order was tried; known when all were asked for."""
        self.count = 0
        numbers = [number for number in range(len(scenario.clients)) if number not in absent]
        self._orders = list(map(WholeOrder, itertools.permutations(numbers)))
        self._whole = min(len(self._orders), ORDERS_MIN)
        self._last = time.monotonic() + ORDERS_S
        self._endings: list[Ending] = []
        self._raised: set[tuple[int, str]] = set()

    def without(self, absent: Sequence[int]) -> OneByOne:
        """Of the other clients."""
        return OneByOne(self.server, self.scenario, absent=absent)

    def __iter__(self) -> Iterator[Ending]:
        at = 0
        while True:
            while at < len(self._endings):
                yield self._endings[at]
                at += 1
            if self.count >= len(self._orders) or self.undecided:
                return
            if self.count >= self._whole and time.monotonic() > self._last:
                self.undecided = f"not every order of whole clients and of their threads was tried, but {self.count}"
                return
            order = self._orders[self.count]
            self.count += 1
            self._try(order)
            if order.crossed:
                self._try(WholeOrder(order.clients, order.picks, is_patient=True))
            self._orders += order.next()

    def _try(self, order: WholeOrder) -> None:
        run, ending = carried_out(self.server, self.scenario, order=order, operations=self.operations)
        if order.is_unsure:
            self.undecided = "an order of whole clients went otherwise when it was tried again, or did not end"
        elif not order.is_parted:
            self._raised |= {(number, end) for number, end in enumerate(ending.ends) if end.startswith("raised")}
            if all(lane.is_over or lane.is_daemon for lane in run.lanes.values()):
                self._endings.append(ending)

    def raises(self, number: int, end: str) -> bool:
        """Whether a client ends in that exception in one of the orders."""
        return any((number, end) in self._raised for _ in self) or (number, end) in self._raised


def _judged(alone: OneByOne, run: Run, ending: Ending, steps: Sequence[ScheduledStep]) -> tuple[str, str] | None:
    scenario = alone.scenario
    for name, lane in run.lanes.items():
        if isinstance(lane.error, AssertionError):
            return "assertion", f"client {name}: {str(lane.error) or 'assertion failed'}"
    stuck = [f"client {number}" for number, end in enumerate(ending.ends) if end == "stuck"]
    if stuck:
        return "no-deadlock", f"{', '.join(stuck)} {'waits' if len(stuck) == 1 else 'wait'} for ever"
    raised = [(number, end) for number, end in enumerate(ending.ends) if end.startswith("raised")]
    is_marked = (
        run.operations or run.inside or any(run.counts.values()) or run.always or run.at_end or scenario.finally_
    )
    compares = scenario.serial if scenario.serial is not None else not is_marked
    if not raised and not compares:
        return None
    numbers = range(len(scenario.clients))
    if raised and any(alone) and all(end.startswith("raised") for each in alone for end in each.ends):
        run.strayed = f"every client dies, one after the other too ({run.lanes[str(raised[0][0])].error})"
        return None
    troubled = any(step.fault for step in steps)
    for number, end in raised:
        if not alone.raises(number, end) and not (
            troubled and isinstance(run.lanes[str(number)].error, (redis.RedisError, OSError))
        ):
            error = run.lanes[str(number)].error
            return "no-foreign-exception", f"client {number} {end} ({error}); in no order one after the other does it"
    if not compares or any(ending.is_like(each) for each in alone):
        return None
    if not any(alone):
        alone.undecided = alone.undecided or "no order of whole clients comes to an end"
    broken = [at for at in numbers if ending.ends[at] in ("killed", "raised ConnectionError", "raised TimeoutError")]
    for count in range(1, len(broken) + 1) if troubled else ():
        for absent in itertools.combinations(broken, count):
            others = alone.without(absent)
            for each in others:
                same = all(ending.ends[at] == each.ends[at] for at in numbers if at not in broken)
                if same and each.keys == ending.keys:
                    return None
            alone.undecided = alone.undecided or others.undecided
    for each in alone if troubled else ():
        if each.keys == ending.keys and all(each.ends[at] == ending.ends[at] for at in numbers if at not in broken):
            return None
    shown = [f"key {key} is {value}" for key, value in ending.keys]
    shown += [f"client {at}: {end}" for at, end in enumerate(ending.ends) if end != "None"]
    return "serializable", f"{'; '.join(shown) or 'nothing is left'}; no order one after the other ends so"


def load(file: Path, name: str) -> Any:
    """The scenario of that name in a file; it needs nothing of orderlab."""
    stand_in: Any = types.ModuleType("orderlab.clients")

    def scenario(clients: Any = 2, *, setup: Any = None, serial: Any = None, **_: Any) -> Any:
        def declare(function: Any) -> Any:
            whole = isinstance(clients, int)
            functions = (function,) * clients if whole else tuple(clients)
            return types.SimpleNamespace(
                clients=functions,
                setup=setup,
                serial=serial,
                finally_=None if whole or says_nothing(function) else function,
            )

        return declare

    stand_in.scenario = scenario
    stand_in.race = None
    names = ("orderlab", "orderlab.clients")
    outer = {known: sys.modules.get(known) for known in names}
    spec: Any = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    sys.modules |= {"orderlab": types.ModuleType("orderlab"), "orderlab.clients": stand_in}
    try:
        spec.loader.exec_module(module)
    finally:
        for known, real in outer.items():
            sys.modules.pop(known, None)
            if real is not None:
                sys.modules[known] = real
    return getattr(module, name)
