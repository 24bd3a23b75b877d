"""Both engines on one specification, the compiled one under a compiler of the test's choice.

`as_it_is` runs the generated kernel as plain Python over numpy's 64-bit integers, where an overflow raises;
`numba_functions` compiles every translated function, as a run does, but not the loop around them.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numba
import numpy as np

from orderlab.model.explorer.compiled import runtime
from orderlab.model.explorer.compiled.program_text import NotCompilable
from orderlab.model.explorer.compiled.space import CompiledSpace
from orderlab.model.explorer.space import InterpretedSpace
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import LeadsTo

STATES_AT_MOST = 60


def as_it_is(function: Any = None, **_: Any) -> Any:
    return function if function is not None else as_it_is


def numba_functions(function: Any = None, **options: Any) -> Any:
    """Compiles what is translated, not the loop around it (which asks for a cache)."""
    return as_it_is if options else numba.njit(function)


def word(function: Callable[..., Any], *given: Any) -> Any:
    return np.int64(function(*given))


def words(*bounds: Any) -> Any:
    return map(np.int64, builtins.range(*map(int, bounds)))


def loaded(text: str, decorate: Callable[..., Any]) -> ModuleType:
    """The generated kernel with another compiler."""
    module = ModuleType("kernel")
    plain = decorate is as_it_is
    lines = [line for line in text.splitlines() if not line.startswith(("from ", "import "))]
    operators = {name: getattr(runtime, name) for name in runtime.CALLED}
    module.__dict__.update(
        np=np, FREE=runtime.FREE, slot_of=runtime.slot_of, njit=decorate,
        int64=np.int64 if plain else numba.int64,
        **({name: operator.py_func for name, operator in operators.items()} if plain else operators),
    )  # fmt: skip
    if plain:
        module.__dict__.update(range=words, **{f.__name__: partial(word, f) for f in (min, max, abs)})
    exec(compile("\n".join(lines), "<kernel>", "exec"), module.__dict__)
    return module


def loaded_as_it_is(text: str) -> ModuleType:
    """A stand-in for `load_kernel`: the same kernel without the seconds of processor time that numba takes for each."""
    return loaded(text, as_it_is)


def observed(space: Any) -> dict[str, Any]:
    """Everything that a space tells of the first states; where it raises, what."""
    seen: dict[str, Any] = {"raised": None, "truth": []}
    expanded = 0
    try:
        space.start()
        while expanded < space.count and expanded < STATES_AT_MOST:
            expanded = space.expand(expanded, min(space.count, expanded + 7))
        for law in space.system.laws():
            if isinstance(law, LeadsTo):
                for side in ("when", "then") if law.when else ("then",):
                    seen["truth"].append((law.name, side, space.truth(law, side, 0, expanded).tolist()))
    except Exception as error:
        seen["raised"] = (type(error).__name__, str(error))
        return seen
    edges = space.edges(0, expanded)
    numbers = range(space.count)
    return {
        **seen,
        "states": [space.state(n) for n in numbers],
        "parents": [space.parent(n) for n in numbers],
        "edges": [
            (int(source), str(edges.labels[label]), int(target))
            for source, label, target in zip(edges.source, edges.label, edges.target, strict=True)
        ],
        "counts": (space.steps, dict(space.found), dict(space.fired()), dict(space.met())),
    }


def compared(system: Specification, decorate: Callable[..., Any] = as_it_is, text: str = "") -> str:
    """How a comparison ended: agreed, raised (on both), or why it was refused. Raises AssertionError where they
    differ."""
    try:
        compiled = CompiledSpace(system, load=lambda kernel: loaded(kernel, decorate))
    except NotCompilable as reason:
        return f"refused: {reason}"
    with np.errstate(over="raise", divide="raise"):
        found = observed(compiled)
    expected = observed(InterpretedSpace(system))
    assert found == expected, f"{text}\n{compiled._text.text}"
    return "raised" if expected["raised"] else "agreed"
