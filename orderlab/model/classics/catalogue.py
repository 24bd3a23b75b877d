"""The catalogue: specifications by name, each with its typed parameters and a way to make it.

Other rooms keep catalogues of their own in the same form; the command line joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orderlab.model.classics.die_hard import DieHard
from orderlab.model.classics.dining_philosophers import dining_philosophers
from orderlab.model.classics.increment import Increment
from orderlab.model.classics.termination_detection import TerminationDetection
from orderlab.model.classics.two_phase_commit import TwoPhaseCommit
from orderlab.model.contracts.feed.spec import Feed
from orderlab.model.contracts.session.spec import SessionSystem
from orderlab.model.errors import InputError
from orderlab.model.pipeline.exploration import Parameters as PipelineParameters
from orderlab.model.protocol import handshake
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import TransitionSystem


@dataclass(frozen=True)
class Entry:
    """`parameters` validates what the user set; `build` makes the system of a validated instance."""

    name: str
    summary: str
    parameters: type[BaseModel]
    build: Callable[[Any], TransitionSystem[Any]]


def declarative(kind: type[Specification]) -> Entry:
    """The entry of a declarative specification: its fields are its parameters, its docstring's first line the
    summary.
    """
    told = import_module(kind.__module__).__doc__ or kind.__doc__ or kind.name
    return Entry(kind.name, told.strip().splitlines()[0], kind, lambda chosen: chosen)


class NoParameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DiningParameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    philosophers: int = Field(3, ge=2, le=10)
    one_left_handed: bool = True


CATALOGUE: tuple[Entry, ...] = (
    declarative(TwoPhaseCommit),
    declarative(TerminationDetection),
    declarative(Increment),
    declarative(DieHard),
    Entry(
        "dining-philosophers",
        "Philosophers around a table, a fork between each two.",
        DiningParameters,
        lambda chosen: dining_philosophers(chosen.philosophers, chosen.one_left_handed),
    ),
    declarative(Feed),
    Entry("session", "The abstract session that a store must refine.", NoParameters, lambda chosen: SessionSystem()),
    Entry(
        "handshake",
        "The QoS 1 and QoS 2 exchange with reconnect, takeover and Receive Maximum.",
        handshake.Scope,
        handshake.Handshake,
    ),
    Entry(
        "pipeline",
        "Publisher to subscriber through Kafka and Redis, with faults; specimens B1 to B14.",
        PipelineParameters,
        PipelineParameters.build,
    ),
)


def make(entries: Mapping[str, Entry], name: str, settings: Mapping[str, str]) -> TransitionSystem[Any]:
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
