"""``@race(clients=2)``: a scenario as a test of pytest; ``race(scenario)`` judges one at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from orderlab.model.verdict import Outcome
from orderlab.properties.clients.race import RaceVerdict, lines_of, schedule_of
from orderlab.properties.clients.race import race as judge
from orderlab.properties.clients.scenario import OF_A_TEST, Scenario
from orderlab.properties.clients.scenario import scenario as declare

Test = Callable[..., None]


@overload
def race(
    scenario: Scenario, effort: str = "normal", trouble: int = 0, seed: int = 0, faults: Sequence[str] = ()
) -> RaceVerdict: ...


@overload
def race(
    scenario: None = None,
    effort: str = "normal",
    trouble: int = 0,
    seed: int = 0,
    faults: Sequence[str] = (),
    *,
    clients: int | Sequence[Callable[..., Any]],
    setup: Callable[..., Any] | None = None,
    serial: bool | None = None,
    oracle: Any = None,
    promises: Mapping[str, Any] | None = None,
    cluster: int = 0,
) -> Callable[[Callable[..., Any]], Test]: ...


def race(
    scenario: Scenario | None = None,
    effort: str = "normal",
    trouble: int = 0,
    seed: int = 0,
    faults: Sequence[str] = (),
    *,
    clients: int | Sequence[Callable[..., Any]] = 2,
    setup: Callable[..., Any] | None = None,
    serial: bool | None = None,
    oracle: Any = None,
    promises: Mapping[str, Any] | None = None,
    cluster: int = 0,
) -> RaceVerdict | Callable[[Callable[..., Any]], Test]:
    """Judge a scenario; with ``clients``, a decorator that makes a pytest test of a scenario's function.

    The test fails with the schedule where a law is broken, and is skipped where not every order was visited (it fails
    under ``--orderlab-strict``). ``faults``: those that may strike; empty: all.
    """
    if scenario is not None:
        return judge(scenario, effort, trouble, seed, faults)

    def decorate(function: Callable[..., Any]) -> Test:
        known = declare(clients, setup=setup, serial=serial, oracle=oracle, promises=promises, cluster=cluster)(
            function
        )

        def test(request: Any) -> None:
            _assert_holds(judge(known, effort, trouble, seed, faults), function, request)

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(test, name, getattr(function, name))
        setattr(test, OF_A_TEST, known)
        return test

    return decorate


def _assert_holds(verdict: RaceVerdict, function: Callable[..., Any], request: Any) -> None:
    import pytest

    request.node.user_properties.append(("orderlab-outcome", str(verdict.outcome)))
    if verdict.outcome is Outcome.VIOLATED:
        request.node.user_properties.append(("orderlab-law", verdict.law))
        file = os.path.relpath(function.__code__.co_filename)
        again = f"  again: orderlab race {file}:{verdict.scenario} --schedule {schedule_of(verdict) or repr('')}"
        pytest.fail("\n".join([*lines_of(verdict), again]), pytrace=False)
    if verdict.outcome is not Outcome.HOLDS:
        if request.config.getoption("--orderlab-strict", False):
            pytest.fail(f"{verdict.scenario} is unknown: {verdict.how_far}", pytrace=False)
        pytest.skip(f"unknown: {verdict.how_far}")
