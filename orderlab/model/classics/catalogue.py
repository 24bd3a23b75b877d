"""The catalogue: specifications by name, each with its typed parameters and a way to make it; and those of one's own
files.

Other rooms keep catalogues of their own in the same form; the command line joins them. A Python file gives entries too:

    orderlab explore peterson.py:Peterson --set broken=true
    orderlab explore locks.py:Bakery

A file offers its declarative specifications (subclasses of `Specification`, whose fields are the parameters) and its
systems (instances of `TransitionSystem`, such as a `ProcessSystem`) by the names that they have in the file. The file
is run as any Python program is: explore only what you trust.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.dining_philosophers import dining_philosophers
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.contracts.base import Contract
from orderlab.model.contracts.feed.specification import Feed
from orderlab.model.contracts.session.spec import SessionSystem
from orderlab.model.errors import Defect, InputError
from orderlab.model.pipeline.exploration import PipelineParameters
from orderlab.model.protocol import handshake
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import TransitionSystem
from orderlab.model.spec.variables import SpecificationError
from orderlab.model.streams.handover import Handover
from orderlab.model.streams.protocols import SMALL_PROTOCOLS
from orderlab.model.streams.replication import Replication


@dataclass(frozen=True)
class CatalogueEntry:
    """`parameters` validates what the user set; `build` makes the system of a validated instance."""

    name: str
    summary: str
    parameters: type[BaseModel]
    build: Callable[[Any], TransitionSystem[Any]]


def declarative(kind: type[Specification]) -> CatalogueEntry:
    """The entry of a declarative specification: its fields are its parameters, its docstring's first line the
    summary.
    """
    told = import_module(kind.__module__).__doc__ or kind.__doc__ or kind.name
    return CatalogueEntry(kind.name, told.strip().splitlines()[0], kind, lambda chosen: chosen)


class NoParameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DiningParameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    philosophers: int = Field(3, ge=2, le=10)
    one_left_handed: bool = True


CATALOGUE: tuple[CatalogueEntry, ...] = (
    declarative(TwoPhaseCommit),
    declarative(TerminationDetection),
    declarative(Increment),
    declarative(DieHard),
    CatalogueEntry(
        "dining-philosophers",
        "Philosophers around a table, a fork between each two.",
        DiningParameters,
        lambda chosen: dining_philosophers(chosen.philosophers, chosen.one_left_handed),
    ),
    declarative(Feed),
    declarative(Handover),
    declarative(Replication),
    *(
        CatalogueEntry(kind.name, (kind.__doc__ or kind.name).splitlines()[0], kind, lambda chosen: chosen)
        for kind in SMALL_PROTOCOLS
    ),
    CatalogueEntry(
        "session", "The abstract session that a store must refine.", NoParameters, lambda chosen: SessionSystem()
    ),
    CatalogueEntry(
        "handshake",
        "The QoS 1 and QoS 2 exchange with reconnect, takeover and Receive Maximum.",
        handshake.HandshakeScope,
        handshake.Handshake,
    ),
    CatalogueEntry(
        "pipeline",
        "Publisher to subscriber through Kafka and Redis, with faults; specimens B1 to B14.",
        PipelineParameters,
        PipelineParameters.build,
    ),
)


def make(entries: Mapping[str, CatalogueEntry], name: str, settings: Mapping[str, str]) -> TransitionSystem[Any]:
    """The named system with the user's settings. Raises InputError, with the nearest known name, for anything
    unknown.
    """
    entry = entries.get(name)
    if entry is None:
        raise InputError(
            f'unknown specification "{name}"{_did_you_mean(name, list(entries))}; explore --list names them'
        )
    fields = list(entry.parameters.model_fields)
    for key in settings:
        if key not in fields:
            known = f"it has {', '.join(fields)}" if fields else "it has none"
            raise InputError(f'{name}: unknown parameter "{key}"{_did_you_mean(key, fields)}; {known}')
    try:
        chosen = entry.parameters.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "parameters"
        raise InputError(f"{name}: --set {place}={settings.get(place, '')}: {first['msg']}") from None
    return entry.build(chosen)


def _did_you_mean(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f'; did you mean "{near[0]}"?' if near else ""


def own_file(name: str) -> Path | None:
    """The file that a name of the form FILE.py or FILE.py:NAME speaks of; None for a name of the catalogue."""
    file, found, rest = name.partition(".py")
    return Path(file + ".py") if found and rest[:1] in ("", ":") else None


def entries_of_file(path: Path) -> dict[str, CatalogueEntry]:
    """What the file defines, by name. Raises InputError if it cannot be read or run, or defines nothing to explore."""
    module_name = f"specifications_of_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"{path}: no such file; name a Python file that defines a Specification or a ProcessSystem")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # where pydantic and inspect look for the text of its classes
    with errors_placed_in(path):
        spec.loader.exec_module(module)
    found: dict[str, CatalogueEntry] = {}
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Specification) and value.__module__ == module_name:
            found[name] = declarative(value)
        elif isinstance(value, TransitionSystem):
            summary = (module.__doc__ or value.name).strip().splitlines()[0]
            found[name] = CatalogueEntry(name, summary, NoParameters, _always(value))
    if not found:
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Contract) and value.__module__ == module_name:
                raise InputError(
                    f"{path}: {name} is the contract of a store; orderlab validate FOLDER --trust-adapter tries the "
                    "store that names it"
                )
        raise InputError(f"{path}: defines nothing to explore: no subclass of Specification, no ProcessSystem")
    return found


def _always(system: TransitionSystem[Any]) -> Callable[[NoParameters], TransitionSystem[Any]]:
    return lambda _: system


def chosen_in_file(path: Path, name: str) -> tuple[dict[str, CatalogueEntry], str]:
    """The entries of the file, and which one FILE.py or FILE.py:NAME means: the only one need not be named."""
    entries = entries_of_file(path)
    wanted = name.partition(".py")[2].removeprefix(":")
    if not wanted and len(entries) > 1:
        raise InputError(f"{path}: which of {', '.join(entries)}? name one, as in {path}:{next(iter(entries))}")
    return entries, wanted or next(iter(entries))


CURES: tuple[tuple[type[BaseException], str], ...] = (
    (NameError, "define it, or import it"),
    (AttributeError, "define it as a field, a property or a method"),
    (ImportError, "install the module, or put it beside the file"),
    (LookupError, "look up only what is there, or require it first"),
    (ZeroDivisionError, "require a divisor that is not 0 first"),
    (RecursionError, "let it end"),
    (AssertionError, "fix what it asserts"),
    (SyntaxError, "fix the line"),
)
"""What to do about an error of the text that does not say so itself."""


@contextmanager
def errors_placed_in(path: Path | None) -> Iterator[None]:
    """Turns an error that the user's text raises into an InputError that names its line; None: leaves errors alone.

    An error that comes from elsewhere is a defect of the suite and passes.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if path is None or isinstance(error, InputError | Defect):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _is(frame.filename, path)]
        if isinstance(error, SyntaxError) and _is(error.filename or "", path):
            lines = [error.lineno]
        if isinstance(error, SpecificationError) and error.place is not None and _is(error.place[0], path):
            lines = [error.place[1]]
        if not lines and not isinstance(error, SpecificationError):
            raise
        place = f"{path}:{lines[-1]}" if lines else str(path)
        raise InputError(f"{place}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "SystemExit: the text ends the program; leave the call out"
    said = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ())[:1])
    cure = next((f"; {cure}" for kind, cure in CURES if isinstance(error, kind)), "")
    if not cure and not isinstance(error, SpecificationError):
        cure = "; fix the line"
    return f"{type(error).__name__}: {said}{notes}{cure}"


def _is(filename: str, path: Path) -> bool:
    return Path(filename).resolve() == path.resolve()
