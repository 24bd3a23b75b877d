"""Sets that only grow and are read whole, by levels: an exact linear algorithm.

If every element is added once, the reads must form a chain: each contains the one before. Between two neighbours of
the chain lie the additions that the later one saw. So the operations fall into levels whose order is forced, adds
and reads in turn; within a level any order does. Giving each operation the earliest moment that its invocation and the
levels before it allow shows whether all can take effect before they return. An add of unknown outcome that no read
saw need not have happened; one that completed and that no read saw comes after all reads.

Complexity: O(n log n + total size of the reads). Exact where it applies; `decide_set` says None if an element is added
twice, or if there are operations besides add and read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orderlab.model.checkers.linearizability.calls import Call
from orderlab.model.checkers.linearizability.operations import NEVER
from orderlab.model.checkers.linearizability.search import Decision
from orderlab.model.verdict import Outcome


def decide_set(calls: Sequence[Call]) -> Decision | None:
    """Decide the calls on one set; None where the levels do not apply."""
    adds = {call.argument: call for call in calls if call.function == "add"}
    reads = [call for call in calls if call.function == "read"]
    if len(adds) + len(reads) != len(calls):
        return None
    reads.sort(key=lambda call: (len(set(call.result or ())), call.returned))
    levels: list[list[Call]] = []
    seen: set[Any] = set()
    before: Call | None = None
    for read in reads:
        elements = set(read.result or ())
        unknown = sorted(elements - adds.keys(), key=repr)
        if unknown:
            return Decision(Outcome.VIOLATED, 0, f"read returned {unknown[0]!r}, which was never added", (read.row,))
        if not seen <= elements:
            assert before is not None
            missing, new = (sorted(part, key=repr)[0] for part in (seen - elements, elements - seen))
            why = f"one read saw {missing!r} and not {new!r}, another {new!r} and not {missing!r}"
            rows = (before.row, read.row, adds[missing].row, adds[new].row)
            return Decision(Outcome.VIOLATED, 0, why, rows)
        if before is None or elements != seen:
            levels += [[adds[element] for element in elements - seen], []]
        levels[-1].append(read)
        seen, before = elements, read
    levels.append([call for element, call in adds.items() if element not in seen and call.returned < NEVER])
    return _schedule(levels)


def _schedule(levels: Sequence[Sequence[Call]]) -> Decision:
    earliest, holder = -1, None
    for level in levels:
        for call in sorted(level, key=lambda call: call.returned):
            if earliest > call.returned:
                assert holder is not None
                why = "this operation returned before one was invoked that must come before it"
                return Decision(Outcome.VIOLATED, 0, why, (call.row, holder.row))
        for call in level:
            if call.invoked > earliest:
                earliest, holder = call.invoked, call
    return Decision(Outcome.HOLDS, 0)
