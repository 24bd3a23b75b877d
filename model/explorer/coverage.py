"""Coverage and vacuity: a law that was never put to the test, or an action that never happened, is a failure.

A specification whose guard can never be met satisfies every invariant. So a complete exploration in which an action
never fired or an antecedent never held ends in a violated `coverage`, whose witness names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.verdict import Outcome, Verdict

COVERAGE = "coverage"


def coverage_verdict(
    fired: Mapping[str, int], declared: tuple[str, ...], met: Mapping[str, int], unfinished: str | None
) -> Verdict:
    """Judge declared actions and antecedents. While states are missing, what was not seen is only not seen yet."""
    silent = [name for name in declared if not fired.get(name)]
    vacuous = [law for law, times in met.items() if not times]
    work = {"actions": len(declared), "actions_fired": len(declared) - len(silent)}
    if not silent and not vacuous:
        return Verdict(COVERAGE, Outcome.HOLDS, work=work)
    if unfinished is not None:
        missing = tuple(f"action {name} has not fired" for name in silent)
        missing += tuple(f"antecedent of {law} has not been met" for law in vacuous)
        return Verdict(COVERAGE, Outcome.UNKNOWN, work=work, not_covered=(unfinished, *missing))
    witness: dict[str, Any] = {"actions_never_fired": silent, "antecedents_never_met": vacuous}
    return Verdict(COVERAGE, Outcome.VIOLATED, witness, work)
