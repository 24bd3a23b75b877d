"""The pytest plugin: `pytest --orderlab-store path/to/store.toml` gives one test for each law, with no Python written.

This module only declares options; it imports nothing of the suite until a store is asked for, so that whoever merely
has orderlab installed pays for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from orderlab.properties.plugin.stash import TOLD

if TYPE_CHECKING:
    from orderlab.properties.plugin.served import ServedRedis

PROFILES = ("dev", "ci", "nightly")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, all under one heading."""
    group = parser.getgroup("orderlab", "orderlab: laws of ordered queues in Redis")
    group.addoption(
        "--orderlab-store",
        action="append",
        default=[],
        metavar="PATH",
        help="Test the laws of this store: a store.toml or its folder. May be given several times. Without paths of "
        "tests on the same command line nothing else is collected.",
    )
    group.addoption("--orderlab-law", action="append", default=[], metavar="LAW", help="Only this law; several times.")
    group.addoption(
        "--orderlab-profile", choices=PROFILES, default=None, help="dev (the default), ci (where CI is set), nightly."
    )
    group.addoption(
        "--orderlab-effort",
        default=None,
        metavar="EFFORT",
        help="Judge as orderlab validate does at this effort: quick, standard, thorough, or a number. Without it: by "
        "the profile.",
    )
    group.addoption("--orderlab-seed", type=int, default=0, help="Of every random draw; printed. Default 0.")
    group.addoption(
        "--orderlab-seconds",
        type=float,
        default=None,
        metavar="S",
        help="Time for each law (nightly: 60 unless given).",
    )
    group.addoption("--orderlab-trust-adapter", action="store_true", help="Run the Python adapter that a store names.")
    group.addoption(
        "--orderlab-strict", action="store_true", help="A law that stays unknown fails; else it is skipped."
    )
    group.addoption(
        "--orderlab-statistics", action="store_true", help="Print how often each rule fired and each law was tested."
    )
    with suppress(ValueError):  # another plugin may have taken the short name
        group.addoption("--statistics", action="store_true", help="As --orderlab-statistics.")
    parser.addini(
        "orderlab_stores", "Stores whose laws are tested along with everything else.", type="paths", default=[]
    )


SERVED = ("cluster", "password", "virtual_clock", "server")
"""What the marker ``orderlab_redis`` takes."""


@pytest.fixture
def orderlab_redis(request: pytest.FixtureRequest) -> Iterator[ServedRedis]:
    """A simulated Redis of this test's own behind a port, with faults (``orderlab_redis.fault("stall 300")``). The
    marker ``orderlab_redis(cluster=3)`` makes it a cluster."""
    from orderlab.properties.plugin.served import ServedRedis

    marker = request.node.get_closest_marker("orderlab_redis")
    given = marker.kwargs if marker is not None else {}
    for word in given:
        if word not in SERVED:
            raise pytest.UsageError(f"orderlab_redis({word}=...): it takes {', '.join(SERVED)}")
    with ServedRedis(**given) as served:
        yield served


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Markers, Hypothesis's profiles if one is asked for, and the session if a store is."""
    config.addinivalue_line("markers", "orderlab: a law of a store, collected by --orderlab-store")
    config.addinivalue_line("markers", f"orderlab_redis({', '.join(SERVED)}): what the fixture serves")
    config.addinivalue_line("markers", "orderlab_law(name): the law that a test judges; noted in JUnit files")
    if str(config.getoption("--hypothesis-profile", None) or "").startswith("orderlab-"):
        import orderlab.properties.profiles  # noqa: F401 - registers them
    if _use_settings(config) or config.getini("orderlab_stores"):
        from orderlab.platform import UNSUPPORTED, is_supported

        if not is_supported():
            raise pytest.UsageError(f"--orderlab-store: {UNSUPPORTED}")
        from orderlab.properties.plugin.session import LawSession

        config.pluginmanager.register(LawSession(config), "orderlab-session")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item):  # type: ignore[no-untyped-def]
    """Note what the machines of a test do, whoever wrote it, and its law for JUnit files."""
    item.user_properties += [("orderlab-law", one.args[0]) for one in item.iter_markers("orderlab_law") if one.args]
    told = item.stash[TOLD] = {}
    before = {name: tally.copy() for name, tally in _tallies().items()}
    yield
    done = {name: tally.since(before[name]) if name in before else tally for name, tally in _tallies().items()}
    told["statistics"] = {name: tally.to_json() for name, tally in done.items() if tally.examples}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """Let the report carry it. A machine that a user wrote, and whose rules broke a law, leaves a trace to replay."""
    outcome = yield
    report = outcome.get_result()
    if call.when == "call" and any(item.stash.get(TOLD, {}).values()):
        report.orderlab = item.stash[TOLD]
    error = call.excinfo.value if call.when == "call" and call.excinfo is not None else None
    trace: Any = getattr(error, "trace", None)
    if isinstance(error, AssertionError) and hasattr(trace, "to_json"):
        from orderlab.properties.plugin.reporting import file_name_of, keep_trace

        told = keep_trace(item.config, file_name_of(item.nodeid), trace.to_json())
        report.sections.append(("orderlab", told))


def _use_settings(config: pytest.Config) -> bool:
    """Take over what [tool.orderlab] of the repository says and the command line does not; whether stores are named."""
    file = config.rootpath / "pyproject.toml"
    if config.getoption("--orderlab-store") or not file.is_file() or b"tool.orderlab" not in file.read_bytes():
        return bool(config.getoption("--orderlab-store"))
    from orderlab.model.errors import InputError
    from orderlab.properties.project_settings import settings_at

    try:
        settings = settings_at(config.rootpath)
    except InputError as error:
        raise pytest.UsageError(str(error)) from None
    if settings is None:
        return False
    config.option.orderlab_effort = config.option.orderlab_effort or settings.effort
    config.option.orderlab_trust_adapter = config.option.orderlab_trust_adapter or settings.trust_adapter
    config.getini("orderlab_stores").extend(settings.stores)
    return bool(settings.stores)


def _tallies() -> dict[str, Any]:
    """Of all machines in this process; none as long as nobody has imported one."""
    module = sys.modules.get("orderlab.properties.machines.tally")
    return {} if module is None else dict(module.TALLIES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Statistics of the machines, if they are asked for."""
    if config.getoption("--orderlab-statistics") or config.getoption("--statistics", False):
        from orderlab.properties.plugin.reporting import print_statistics

        print_statistics(terminalreporter)
