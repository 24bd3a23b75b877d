"""How much work a validation does, counted in steps: the same searches, verdicts and reports on every machine.

Effort is a number, 1 for ``quick``. A larger effort does what each smaller one does, in the same order, and then more:
its rounds begin with theirs, and what a round has found stays found. So more effort never tells less, and a cap in
seconds cuts the last things first.
"""

from __future__ import annotations

import math

from orderlab.model.errors import InputError

QUICK, STANDARD, THOROUGH = 1.0, 10.0, 50.0
EFFORTS = {"quick": QUICK, "standard": STANDARD, "thorough": THOROUGH}
EFFORT_MAX = 100_000.0
STATES = 400
"""Of each scope, for each unit of effort."""
WALKS = 25
SCOPE_STEPS = 6_000
"""Of the exhaustive scopes together, for each unit of effort."""
CORE_STEPS = 20_000
"""At least, of a scope without which no law holds, whatever the effort: many times what two operations take."""
SITUATION_STEPS = 2_000
"""Of runs that go on where something new was seen, for each unit of effort."""
BOUNDARY_STEPS = 900
"""After a call with an argument at a boundary, for each unit of effort."""
CLOSING_STEPS = 7_000
"""Of closing a scope, for each unit of effort."""
CLOSING_STEPS_CERTIFIED = 200_000
"""At least, where a certificate is asked for."""
EXAMPLES = 10
"""Of the state machine from an empty store, and again from near the wrap."""
WITNESS_STEPS = 5_000
"""Steps for each search for witnesses of one law (``Reruns.spent``): each law has its own."""
SCALED_STEPS = 20_000
"""At least so many for the first witness of a law at full scale: two times all identifiers come round, each
acknowledged."""
WITNESS_STEPS_MAX = 25_000
SHORTENING_STEPS = 3_000
"""Of which so many to make one of them short."""
INSTRUCTIONS = 500_000_000
"""Of Lua, for one analysis in the first round, counted in whole millions of each script: for scripts that are slow, but
end."""
INSTRUCTIONS_MORE = 100_000_000
"""And for each further unit of effort."""


def effort_named(text: str, option: str = "--effort") -> float:
    """``quick``, ``standard``, ``thorough`` or a number. Raises InputError, naming the ``option``."""
    if text in EFFORTS:
        return EFFORTS[text]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.01 <= number <= EFFORT_MAX:
        known = ", ".join(f"{name} ({value:g})" for name, value in EFFORTS.items())
        raise InputError(f"{option} {text}: no such effort; give {known} or a number from 0.01 to {EFFORT_MAX:,.0f}")
    return number


def name_of_effort(effort: float) -> str:
    """Its name, or the number where it has none."""
    return next((name for name, value in EFFORTS.items() if value == effort), f"{effort:g}")


def rounds_of(effort: float) -> list[float]:
    """The efforts at which verdicts are made on the way to ``effort``, the last of them ``effort`` itself."""
    rounds, unit = [], QUICK
    for factor in (1.0, STANDARD, THOROUGH):
        unit = QUICK * factor
        if unit < effort:
            rounds.append(unit)
    while (unit := unit * 5) < effort:
        rounds.append(unit)
    return [*rounds, effort]


def count(unit: float, effort: float) -> int:
    """So many of what ``unit`` counts, at least one."""
    return max(math.ceil(unit * effort), 1)


def witness_steps(effort: float) -> int:
    """Steps that the witnesses of one law may take in the round of ``effort``."""
    return max(WITNESS_STEPS, min(count(WITNESS_STEPS, effort), WITNESS_STEPS_MAX * max(int(effort / STANDARD), 1)))
