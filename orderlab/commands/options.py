"""Options that several commands have, and what options of one ask together: which exclude each other, which need
another, and pairs of name and value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from orderlab.model.errors import InputError
from orderlab.sim.redis.versions import DEFAULT, VERSIONS, ServerVersion, version_named

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def _known_expectation(expect: str) -> str:
    if expect not in ("broken", "fixed"):
        raise InputError(f"--expect {expect}: write broken or fixed")
    return expect


ServerName = Annotated[str, typer.Option("--server", metavar="|".join(VERSIONS), help="The server that it is.")]
OtherServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="|".join(VERSIONS),
        help="The server that it is; as it is, what the store or scenario says, pyproject.toml, or 7.0.",
    ),
]
TrustAdapter = Annotated[bool, typer.Option(help="Run the Python that a store names: its adapter, its contract.")]
AllowVacuous = Annotated[bool, typer.Option("--allow-vacuous", help="Exit 0, not 3, where no law was tested.")]
EveryLaw = Annotated[bool, typer.Option("--verbose", "-v", help="List every law, and how often it was tested.")]
Expect = Annotated[
    str,
    typer.Option(
        metavar="broken|fixed",
        callback=_known_expectation,
        help="With --export pytest: pass while the law is broken as here, or (fixed) fail until it is repaired.",
    ),
]


class Exclusion(NamedTuple):
    """An option, those that cannot be given with it, and what is said then."""

    option: str
    others: tuple[str, ...]
    why: str


class Requirement(NamedTuple):
    """An option that says something about another."""

    option: str
    other: str
    why: str


def check_together(plan: DataclassInstance, exclusions: Sequence[Exclusion], needs: Sequence[Requirement] = ()) -> None:
    """Raises InputError for the first row that the options break; those that have their defaults are not given."""
    given = {each.name: getattr(plan, each.name) for each in fields(plan) if getattr(plan, each.name) != each.default}
    for option, others, why in exclusions:
        if option in given and not given.keys().isdisjoint(others):
            raise InputError(why)
    for option, other, why in needs:
        if option in given and other not in given:
            raise InputError(why.format(_shown(given[option])))


def server_of(given: str | None, said: ServerVersion | None = None) -> ServerVersion:
    """The server that scripts run on: what the option names, else ``said``, what their store or scenario names, else
    what [tool.orderlab] of the repository does. Raises InputError."""
    from orderlab.properties.project_settings import settings_at

    if given is not None:
        return version_named(given)
    if said is not None:
        return said
    settings = settings_at(Path.cwd())
    return DEFAULT if settings is None or settings.server is None else version_named(settings.server)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def parsed(settings: Sequence[str], example: str) -> dict[str, str]:
    """`name=value` pairs, given by ``--set``. Raises InputError for anything else and for a name that is set twice."""
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise InputError(f'--set {setting}: not a setting; write --set key=value, for instance "--set {example}"')
        if name in found:
            raise InputError(f"--set {setting}: {name} is set twice; keep one")
        found[name] = value.strip()
    return found
