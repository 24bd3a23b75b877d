"""Generated specifications on both engines: same states, order, parents, edges, findings, counters, and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.model.explorer.engines import as_it_is, compared, numba_functions
from tests.model.explorer.generated_specifications import program, specification


def run(seeds: range, decorate: Callable[..., Any]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for seed in seeds:
        text = program(seed)
        ends[compared(specification(text, f"drawn_{seed}"), decorate, text).partition(":")[0]] += 1
    return ends


def test_generated_specifications_agree() -> None:
    ends = run(range(120), as_it_is)
    assert min(ends["agreed"], ends["raised"], ends["refused"]) > 8, ends


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(40))
def test_twenty_thousand_generated_specifications_agree(part: int) -> None:
    run(range(1000 + 500 * part, 1500 + 500 * part), as_it_is)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(10))
def test_compiled_by_numba_they_agree(part: int) -> None:
    run(range(100_000 + 40 * part, 100_040 + 40 * part), numba_functions)
