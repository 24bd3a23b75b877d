"""Coverage and vacuity: a law that was never put to the test, or an action that never happened, is a failure.

A specification whose guard can never be met satisfies every invariant. So a complete exploration in which an action
never fired or an antecedent never held is vacuous in that respect, and vacuous is not held: `coverage` is unknown, names
them, and so is each law that was not put to the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orderlab.model.verdict import Outcome, Verdict

COVERAGE = "coverage"


def coverage_verdict(
    fired: Mapping[str, int],
    declared: tuple[str, ...],
    untested: Sequence[str],
    unfinished: str | None,
) -> Verdict:
    """Judge declared actions and laws. While states are missing, what was not seen is only not seen yet."""
    silent = [name for name in declared if not fired.get(name)]
    work = {"actions": len(declared), "actions_fired": len(declared) - len(silent)}
    if not silent and not untested:
        return Verdict(COVERAGE, Outcome.HOLDS, work=work)
    if unfinished is not None:
        missing = tuple(f"action {name} has not fired" for name in silent)
        missing += tuple(f"{law} has not been put to the test" for law in untested)
        return Verdict(COVERAGE, Outcome.UNKNOWN, work=work, not_covered=(unfinished, *missing))
    gaps = tuple(f"vacuous: action {name} never fired" for name in silent)
    gaps += tuple(f"vacuous: {law} was never put to the test" for law in untested)
    return Verdict(COVERAGE, Outcome.UNKNOWN, work={**work, "antecedents": 0}, not_covered=gaps)
