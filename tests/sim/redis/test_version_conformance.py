"""The kernel as another server against that server, where it is there: ``ORDERLAB_SERVERS`` names a folder that holds
executables (`notes/servers.md` says which packages carry them)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orderlab.sim.live import candidates, read_version
from orderlab.sim.redis.versions import DEFAULT, VERSIONS
from tests.laboratory.conformance.judge import render
from tests.laboratory.conformance.run import run

COMMANDS_COMPARED = 3000
JUDGED_BY = {"6.2": ("redis", (6, 2)), "7.4": ("redis", (7, 4)), "8.0": ("redis", (8,)), "valkey-8": ("valkey", (8,))}
"""Product, and how its version begins."""
ORDER_OF_ERRORS = frozenset(
    f"{name}: error text" for name in ("xinfo", "xgroup", "xsetid", "geosearch", "georadius", "georadius_ro")
)
"""Of two mistakes in one line 6.2 names the other one here."""


def server_of(name: str) -> Path | None:
    """An executable of that server."""
    product, version = JUDGED_BY[name]
    folder = os.environ.get("ORDERLAB_SERVERS")
    for path in (*(sorted(Path(folder).iterdir()) if folder else ()), *candidates()):
        binary = read_version(path)
        if binary is not None and binary.product == product and binary.version[: len(version)] == version:
            return path
    return None


@pytest.mark.server
@pytest.mark.parametrize("name", JUDGED_BY)
def test_the_kernel_agrees_with_the_server_that_it_is(name: str) -> None:
    path = server_of(name)
    if path is None:
        pytest.skip(f"{VERSIONS[name]} was not compared: no such server; ORDERLAB_SERVERS names the folder of one")
    report = run("kernel", COMMANDS_COMPARED, seed=2026, version=VERSIONS[name], path=str(path))
    excused = ORDER_OF_ERRORS if name == "6.2" else frozenset()
    told = [render(found) for what, found in report.examples.items() if what not in excused]
    assert not told, "\n\n".join(told)
    assert report.compared >= COMMANDS_COMPARED


def test_every_server_but_the_default_has_a_judge_or_none_is_known() -> None:
    assert VERSIONS.keys() - JUDGED_BY.keys() == {DEFAULT.name, "7.2"}
