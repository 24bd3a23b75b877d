"""`orderlab cost`: what each operation of a store costs, as functions of length, batch and payload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from orderlab.commands.options import server_of
from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.properties.costs.estimates import Checked, Dearer, Estimate
    from orderlab.sim.redis.versions import ServerVersion
    from orderlab.sim.stores.binding.binding import Binding

LUA_TIME_LIMIT_MS = 5000.0
"""Of a server, unless it is configured otherwise: past it others are told BUSY."""
FORMS = ("html", "json")


def cost(
    path: Annotated[Path, typer.Argument(help="A store.toml, or its folder.")],
    base: Annotated[str | None, typer.Option(help="What is dearer than in this folder, script or revision.")] = None,
    budget_ms: Annotated[
        float, typer.Option(min=0.001, help="For which one call may block its node; as it is, lua-time-limit.")
    ] = LUA_TIME_LIMIT_MS,
    length: Annotated[
        int | None, typer.Option(min=1, help="What the store holds at most; as it is, its own limit or 10,000.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="The largest batch or page.")] = 1000,
    payload: Annotated[int, typer.Option(min=1, help="Bytes of the largest payload.")] = 64_000,
    server: Annotated[
        list[str] | None,
        typer.Option(
            help="Which server it is (6.2 to 8.0, valkey-8); or one to check on: auto (one of our own) or "
            "redis://HOST:PORT/DB. May be given for each."
        ),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every situation, not each operation's dearest.")] = False,
    report: Annotated[list[str] | None, typer.Option(help="FORM=FILE; FORM is html or json.")] = None,
    trust_adapter: Annotated[bool, typer.Option(help="Let Python files of the store run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure commands, blocked time, Lua instructions and memory, and fit how they grow.

    Times are estimates of the cost model, the same on every machine. Exit code 0: within the budget; 1: over it, or
    with --base something grows faster than before; 2: unusable input; 3: nothing could be measured.
    """
    from orderlab.properties.comparison.base_revision import old_store
    from orderlab.properties.costs.estimates import dearer, dearest, memory_form
    from orderlab.report.cost import cost_page
    from orderlab.report.output import wanted_files, write_files
    from orderlab.sim.stores.binding import load_binding

    wanted = wanted_files("--report", report, FORMS)
    named, checked_on = _kinds_of_server(server or [])
    binding = load_binding(path, trust_adapter=trust_adapter)
    binding = binding.on(server_of(named, binding.said_server))
    at = {"length": length or _limit_of(binding), "batch": batch, "payload": payload}
    estimated, checked = _measured(binding, at, checked_on)
    changes: list[Dearer] = []
    if base is not None:
        with old_store(path, base, trust_adapter) as old:
            before = old.on(server_of(named, old.said_server))
            changes = dearer(_measured(before, at, None)[0], estimated)
    budget_us, memory = budget_ms * 1000, memory_form(estimated)
    shown = estimated if all_ else dearest(estimated)
    text = json.dumps(_as_json(str(path), estimated, checked, changes, budget_ms, binding.server), indent=1)
    forms = {"json": lambda: text + "\n", "html": lambda: cost_page(str(path), shown, memory, budget_us)}
    write_files([(one.file, forms[one.form]()) for one in wanted])
    if as_json:
        print(text)
    else:
        _show(estimated, shown, checked, changes, budget_us, base)
        for each in binding.server.assumed():
            print(f"assumed: {each}")
    is_over = any(one.at_us > budget_us for one in estimated) or any(one.grows for one in changes)
    raise typer.Exit(ExitCode.UNKNOWN if not estimated else ExitCode.VIOLATED if is_over else ExitCode.HOLDS)


def _kinds_of_server(given: list[str]) -> tuple[str | None, str | None]:
    """The server that is imitated and the one to check on, as they were named. Raises InputError."""
    places = [each for each in given if each == "auto" or "://" in each]
    names = [each for each in given if each not in places]
    for each in (*names[1:], *places[1:]):
        raise InputError(f"--server {each}: a second one of its kind; give one of them")
    return (names[0] if names else None), (places[0] if places else None)


def _limit_of(binding: Binding) -> int:
    return int(binding.fixed.get("limit", 10_000))


def _measured(binding: Binding, at: dict[str, int], server: str | None) -> tuple[list[Estimate], Checked | None]:
    """The forms, and what a server says of them if one is named."""
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.properties.costs.estimates import check, estimates
    from orderlab.sim.redis.backends.backend import FIRST_MS
    from orderlab.sim.redis.backends.server import ServerBackend
    from orderlab.sim.stores.bound import load_scripts

    if server is None:
        return estimates(kind_of(binding).readings(binding, FIRST_MS), at), None
    backend = ServerBackend.start() if server == "auto" else ServerBackend.from_url(server)
    try:
        estimated = estimates(kind_of(binding).readings(binding, backend.now_ms), at)
        return estimated, check(estimated, backend, lambda: load_scripts(binding, backend))
    finally:
        backend.close()


def _as_json(
    store: str,
    estimated: list[Estimate],
    checked: Checked | None,
    changes: list[Dearer],
    budget_ms: float,
    version: ServerVersion,
) -> dict[str, Any]:
    from dataclasses import asdict

    from orderlab.properties.costs.estimates import memory_form

    memory = memory_form(estimated)
    return {
        "store": store, "imitates": str(version), "budget_ms": budget_ms,
        "operations": [one.to_json() for one in estimated],
        "memory_bytes": None if memory is None else asdict(memory),
        "over": [one.situation for one in estimated if one.at_us > budget_ms * 1000],
        "server": None if checked is None else {
            "server": checked.server, "ratio": checked.ratio, "within": checked.within, "memory": checked.memory,
            "memory_at_length": checked.memory_at_length,
            "forms": [
                {"axis": axis, "situation": name, **asdict(form)} for (axis, name), form in checked.forms.items()
            ],
        },
        "dearer": [asdict(one) for one in changes],
    }  # fmt: skip


def _show(
    estimated: list[Estimate], shown: list[Estimate], checked: Checked | None, changes: list[Dearer], budget_us: float,
    base: str | None,
) -> None:  # fmt: skip
    import sys

    from orderlab.properties.costs.estimates import memory_form
    from orderlab.report.cost import duration, print_costs, told_dearer
    from orderlab.report.terminal import WIDTH_IN_PIPE
    from orderlab.report.words import counted

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_IN_PIPE)
    print_costs(console, shown, memory_form(estimated), budget_us, checked)
    for one in changes:
        console.print(f"dearer: {told_dearer(one)}", markup=False, soft_wrap=True)
    if base is not None and not changes:
        console.print(f"nothing is dearer than in {base}", markup=False)
    over = [one.situation for one in estimated if one.at_us > budget_us]
    verdict = f"over the budget of {duration(budget_us)}: {', '.join(over)}" if over else ""
    console.print(verdict or f"every call within the budget of {duration(budget_us)}", markup=False, soft_wrap=True)
    left = len(estimated) - len(shown)
    if left:
        console.print(f"{counted(left, 'situation')} that cost less: --all", markup=False)
