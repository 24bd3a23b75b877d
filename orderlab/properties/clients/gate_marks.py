"""Marks of clients on a real server: what a client says of itself there, as on the kernel.

See ``gate``: an exported test is the text of both.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from orderlab.properties.clients.gate import Run, current, sleep

EMPTY = frozenset(("RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"))
"""Instructions of a function that does nothing but return a constant."""


def says_nothing(check: Callable[..., Any]) -> bool:
    """Whether a check is an empty function, which no order of steps can break."""
    code = getattr(check, "__code__", None)
    if code is None:
        return False
    instructions = list(dis.get_instructions(code))
    returned = [each.argval for each in instructions if each.opname in ("LOAD_CONST", "RETURN_CONST")]
    return returned == [None] and all(each.opname in EMPTY for each in instructions)


class At:
    """The marks of one client."""

    def __init__(self, run: Run, client: int) -> None:
        self.run, self.client = run, client

    @contextmanager
    def __call__(self, name: str, most: int = 1) -> Iterator[None]:
        """Within it at most ``most`` clients are at once."""
        run, lane = self.run, current.lane
        assert lane is not None
        with run.gate("mark", f"enters {name}"):
            inside = run.inside[name] = [each for each in run.inside[name] if not run.lanes[each].is_killed]
            inside.append(lane.name)
            if len(inside) > most:
                who = ", ".join(f"client {each}" for each in inside)
                run.violate(f"at-most-{most}", f"{who} are in {name!r} at once; at most {most} may be")
        try:
            yield
        finally:
            if not lane.is_killed and not run.is_over:
                with run.gate("mark", f"leaves {name}"):
                    if lane.name in run.inside[name]:
                        run.inside[name].remove(lane.name)

    def sleep(self, seconds: float) -> None:
        """Sleep as ``time.sleep`` does."""
        sleep(seconds)

    def _count(self, what: str, item: Any) -> int:
        self.run.counts[what][repr(item)] += 1
        return self.run.counts[what][repr(item)]

    def once(self, item: Any) -> None:
        """``item`` is done at most once."""
        if self._count("done", item) > 1:
            self.run.violate("at-most-once", f"{item!r} is done twice")

    def produced(self, item: Any) -> None:
        """``item`` was handed over."""
        self._count("produced", item)

    def consumed(self, item: Any) -> None:
        """``item`` was received."""
        if self._count("consumed", item) > 1:
            self.run.violate("at-most-once", f"{item!r} is consumed twice")

    def does(self, name: str, method: Any, /, *, reply: Any = None, refused: Any = (), **fields: Any) -> Any:
        """Call ``method`` as an operation of a contract."""
        result = self.run.operations.does(name, method, reply, refused, fields)
        self.run.holder = None
        return result

    def always(self, check: Callable[..., Any]) -> None:
        """``check(redis)`` holds after every step."""
        self.run.always.setdefault(getattr(check, "__code__", check), check)

    def finally_(self, check: Callable[..., Any]) -> None:
        """``check(redis)`` holds at the end."""
        self.run.at_end.setdefault(getattr(check, "__code__", check), check)
