"""A scenario: the functions that clients run, each in a lane of its own."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from orderlab.model.contracts.base import Contract
from orderlab.model.errors import InputError
from orderlab.properties.clients.nodes import MASTERS_MAX
from orderlab.sim.redis.versions import ServerVersion, version_named

OF_A_TEST = "orderlab_scenario"
"""Where a test that ``@race`` makes keeps its scenario."""


@dataclass(frozen=True)
class Scenario:
    """What ``@scenario`` makes of a function.

    clients: what each client runs. setup: is run alone, before; its commands are no steps. serial: whether outcomes are
    held against the clients' orders one after the other; None: unless the clients set marks.
    """

    name: str
    clients: tuple[Callable[..., Any], ...]
    setup: Callable[..., Any] | None = None
    serial: bool | None = None
    finally_: Callable[..., Any] | None = None
    contract: Contract | None = None
    """What ``at.does`` is judged by."""
    cluster: int = 0
    """Masters of the cluster that clients call; 0: one node that is none."""
    server: ServerVersion | None = None
    """The server that clients call; None: whichever is usual."""

    @cached_property
    def folder(self) -> str:
        """Where its own file is: what runs from elsewhere is called a library's."""
        for function in self.clients:
            code = getattr(function, "__code__", None)
            if code is not None and not code.co_filename.startswith("<"):
                return str(Path(code.co_filename).resolve().parent) + os.sep
        return ""

    def __call__(self, *arguments: Any) -> Any:
        return self.clients[0](*arguments)


def scenario(
    clients: int | Sequence[Callable[..., Any]] = 2,
    *,
    setup: Callable[..., Any] | None = None,
    serial: bool | None = None,
    oracle: Any = None,
    promises: Mapping[str, Any] | None = None,
    cluster: int = 0,
    server: str | None = None,
) -> Callable[[Callable[..., Any]], Scenario]:
    """Make a scenario of a function that ``clients`` clients run at once. With a list of functions those are the
    clients, and what is decorated is called at the end with a client of its own, to look at what is left.

    A client's function takes ``redis``, ``at``, both or none. ``oracle``: the contract that operations (``at.does``)
    are judged by: lock, limiter, feed, job-queue, session, the folder of a store, or a Contract; ``promises``: as in a
    ``store.toml``. ``cluster``: masters of a cluster on ports from 7000 on, whose client (RedisCluster) is handed.
    ``server``: 6.2 to 8.0 or valkey-8, as ``race --server`` takes it.
    """
    if callable(clients):
        raise InputError("scenario: write @scenario() or @scenario(clients=2) above a function, with its brackets")
    contract = None
    if oracle is not None:
        from orderlab.properties.clients.history import contract_of

        contract = contract_of(oracle, promises)
    count = clients if isinstance(clients, int) else len(clients)
    if count < 1:
        raise InputError("scenario: clients: at least one is needed")

    if setup is not None and not callable(setup):
        raise InputError(f"scenario: setup: {setup!r:.40} is no function; write one that takes redis")

    if not 0 <= cluster <= MASTERS_MAX:
        raise InputError(f"scenario: cluster: {cluster} masters; write 1 to {MASTERS_MAX}, or leave it out")

    version = None if server is None else version_named(server, "scenario: server")

    def declare(function: Callable[..., Any]) -> Scenario:
        if isinstance(clients, int):
            return Scenario(function.__name__, (function,) * clients, setup, serial, None, contract, cluster, version)
        from orderlab.properties.clients.gate_marks import says_nothing

        # One that says nothing leaves outcomes to be compared, as where there is none.
        at_the_end = None if says_nothing(function) else function
        return Scenario(function.__name__, tuple(clients), setup, serial, at_the_end, contract, cluster, version)

    return declare


def called(function: Callable[..., Any], redis: Any, at: Any) -> Any:
    """Call a function of a scenario with what it takes."""
    names = _parameters(function)
    given = {"redis": redis, "at": at}
    if all(name in given for name in names):
        return function(**{name: given[name] for name in names})
    return function(*(redis, at)[: len(names)])


@cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ("redis", "at")


def load(named: str) -> list[Scenario]:
    """The scenarios of ``PATH[:NAME]``. Raises InputError."""
    path_text, _, name = named.partition(".py:")
    path = Path(path_text + ".py" if name else named)
    if not path.is_file():
        raise InputError(f"{path}: no such file; name a Python file with a @scenario in it")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: cannot be imported: {type(error).__name__}: {text}; correct it") from None
    gathered = [
        replace(known, name=attribute)
        for attribute, value in vars(module).items()
        if isinstance(known := getattr(value, OF_A_TEST, value), Scenario)
    ]
    chosen = [each for each in gathered if not name or each.name == name]
    if not chosen:
        has = ", ".join(each.name for each in gathered) or "none; decorate a function with @orderlab.clients.scenario"
        raise InputError(f"{path}: no scenario {name or ''}; it has {has}".replace("scenario ;", "scenario;"))
    return chosen
