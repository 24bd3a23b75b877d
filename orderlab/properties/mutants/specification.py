"""Mutants of a specification: its actions with one flaw each, explored; which laws notice?

A law of a specification that notices none of them says nothing that the others do not say, or nothing at all: it is
named. What is mutated is the Python text of the actions and of the functions that they call, in the module of the
specification; its laws, its scope and its rendering are left alone.
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orderlab.model.classics.catalogue import CATALOGUE, make
from orderlab.model.errors import InputError, did_you_mean
from orderlab.model.explorer.exploration import explore
from orderlab.model.explorer.search import Budget, Options
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.transition_system import COVERAGE, TransitionSystem
from orderlab.model.verdict import Outcome
from orderlab.properties.mutants.mutant import Mutant
from orderlab.properties.mutants.python_text import OPERATORS, mutants_of_functions
from orderlab.properties.mutants.sampling import sample
from orderlab.sim.redis.lua.watchdog import Unfinished, watch

STATES_MAX = 20_000
"""Of one mutant. A flaw of a small scope shows early."""
SECONDS_MAX = 30.0
"""Wall time of one mutant, after which it is said to be timed out."""
AN_ERROR = "an error"
"""What notices a mutant whose text fails when it is run."""

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class JudgedAction:
    """One mutant of a specification."""

    mutant: Mutant
    outcome: str
    laws: tuple[str, ...] = ()
    """Every law that was seen broken."""
    text: str = ""

    @property
    def law(self) -> str:
        return ", ".join(self.laws)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.mutant.to_json(), "outcome": self.outcome, "laws": list(self.laws), "text": self.text}


@dataclass
class SpecificationScore:
    """What became of the mutants of one specification."""

    name: str
    laws: tuple[str, ...]
    judged: list[JudgedAction] = field(default_factory=list)
    interrupted: bool = False

    def _with(self, *outcomes: str) -> list[JudgedAction]:
        return [one for one in self.judged if one.outcome in outcomes]

    @property
    def killed(self) -> int:
        """Noticed: by a law, or because it fails or does not end."""
        return len(self._with("killed", "timed out"))

    @property
    def equivalents(self) -> list[JudgedAction]:
        """Those with the same steps in every state that the original reaches."""
        return self._with("equivalent")

    @property
    def survivors(self) -> list[JudgedAction]:
        return self._with("survived")

    @property
    def score(self) -> float:
        meant = len(self.judged) - len(self.equivalents)
        return self.killed / meant if meant else 1.0

    def by_law(self) -> dict[str, int]:
        """How many mutants each law notices."""
        return dict(Counter(law for one in self.judged for law in one.laws).most_common())

    @property
    def idle_laws(self) -> list[str]:
        """Laws that notice none."""
        known = self.by_law()
        return [law for law in self.laws if law not in known]

    def to_json(self) -> dict[str, Any]:
        """Plain values, every mutant among them."""
        return {
            "specification": self.name,
            "mutants": len(self.judged),
            "killed": self.killed,
            "survived": len(self.survivors),
            "equivalent": len(self.equivalents),
            "score": round(self.score, 4),
            "by_law": self.by_law(),
            "laws_that_kill_nothing": self.idle_laws,
            "interrupted": self.interrupted,
            "judged": [one.to_json() for one in self.judged],
        }


def mutate_specification(
    name: str,
    only: Sequence[str] = (),
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = lambda done, of, text: None,
) -> SpecificationScore:
    """Judge the mutants of the specification ``name`` at its default parameters, one after the other.

    Raises InputError for a name that is not known, and for a specification whose text is not in one module.
    """
    system = specification_named(name)
    score = SpecificationScore(name, tuple(law.name for law in system.laws()))
    mutants = sample(mutants_of_system(system, only), limit, seed)
    broken = _broken(system)
    if broken:
        raise InputError(
            f"specification {name}: it breaks {', '.join(broken)} as it is; mend it first (orderlab explore)"
        )
    steps = _all_steps(system)
    for done, mutant in enumerate(mutants):
        progress(done, len(mutants), f"{mutant.place} {mutant.said}")
        try:
            score.judged.append(judge_action(system, mutant, steps))
        except KeyboardInterrupt:
            score.interrupted = True
            break
    _ask_idle_laws(system, score, steps)
    return score


def specification_named(name: str) -> TransitionSystem[Any]:
    """The specification at its default parameters. Raises InputError for an unknown name."""
    return make({entry.name: entry for entry in CATALOGUE}, name, {})


def mutants_of_system(system: TransitionSystem[Any], only: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of the actions of a system."""
    for one in only:
        if one not in OPERATORS:
            raise InputError(f"--only {one}: no such operator; {did_you_mean(one, tuple(OPERATORS))}")
    module = _module_of(system)
    file = inspect.getsourcefile(module)
    assert file is not None
    roots = system.action_names() if isinstance(system, Specification) else ("successors",)
    return list(mutants_of_functions(Path(file).read_bytes(), _place(module), roots, only or tuple(OPERATORS)))


def judge_action(system: TransitionSystem[Any], mutant: Mutant, steps: Steps) -> JudgedAction:
    """Explore the mutant in a process of its own: a guard that is gone may leave a loop that does not end."""
    answer = watch(lambda: _judge(mutated(system, mutant), steps), seconds_max=SECONDS_MAX)
    if isinstance(answer, Unfinished):
        return JudgedAction(mutant, "timed out", (AN_ERROR,), answer.reason)
    outcome, laws, text = answer.value
    return JudgedAction(mutant, outcome, laws, text)


def mutated(system: TransitionSystem[Any], mutant: Mutant, laws: Iterable[str] | None = None) -> Any:
    """The system as the mutant's text has it; with ``laws``, judged by those alone."""
    module = _module_of(system)
    made = types.ModuleType(f"{module.__name__}_mutant")
    made.__file__ = module.__file__
    sys.modules[made.__name__] = made  # pydantic looks annotations up there
    exec(compile(mutant.source, mutant.script, "exec"), made.__dict__)
    kind = getattr(made, type(system).__name__)
    if laws is not None:
        wanted = frozenset(laws)
        original = kind.laws
        kind.laws = lambda self: [law for law in original(self) if law.name in wanted]
    if isinstance(system, Specification):
        return kind.model_validate(system.model_dump())
    one = copy.copy(system)
    one.__class__ = kind
    return one


# -- what the original does, and what a mutant breaks ------------------------------------------------------------------

Steps = list[tuple[Any, list[tuple[str, Any]]]]
"""Every state that the original reaches, with the steps out of it."""


def _all_steps(system: TransitionSystem[Any]) -> Steps:
    waiting = list(system.initial_states())
    known = set(waiting)
    found: Steps = []
    while waiting and len(found) < STATES_MAX:
        state = waiting.pop(0) if len(waiting) < 1000 else waiting.pop()
        steps = [(str(label), after) for label, after in system.successors(state)]
        found.append((state, steps))
        for _, after in steps:
            if after not in known:
                known.add(after)
                waiting.append(after)
    return found


def _judge(system: TransitionSystem[Any], steps: Steps) -> tuple[str, tuple[str, ...], str]:
    try:
        difference = _difference(system, steps)
        if difference:
            broken = _broken(system)
            return ("killed", broken, "") if broken else ("survived", (), difference)
        return "equivalent", (), ""
    except Exception as error:
        return "killed", (AN_ERROR,), f"{type(error).__name__}: {error}"


def _difference(system: TransitionSystem[Any], steps: Steps) -> str:
    for state, expected in steps:
        found = [(str(label), after) for label, after in system.successors(state)]
        if found != expected:
            one = next((pair for pair in found if pair not in expected), None)
            return f"takes another step: {one}" if one else "lacks a step, or takes them in another order"
    return ""


def _broken(system: TransitionSystem[Any]) -> tuple[str, ...]:
    found = explore(system, Options(Budget(STATES_MAX, None), engine="interpreted"))
    lost = (one.law == COVERAGE and one.vacuous for one in found.verdicts)
    return tuple(
        one.law for one, vacuous in zip(found.verdicts, lost, strict=True) if one.outcome is Outcome.VIOLATED or vacuous
    )


def _ask_idle_laws(system: TransitionSystem[Any], score: SpecificationScore, steps: Steps) -> None:
    """A search ends with the first law that breaks: the others are asked by themselves before they are called idle."""
    for at, one in enumerate(score.judged):
        idle = score.idle_laws
        if not idle or score.interrupted:
            return
        if one.outcome == "killed" and AN_ERROR not in one.laws:
            mutant = one.mutant
            answer = watch(lambda: _judge(mutated(system, mutant, idle), steps), seconds_max=SECONDS_MAX)  # noqa: B023
            if not isinstance(answer, Unfinished):
                more = tuple(law for law in answer.value[1] if law in idle)
                score.judged[at] = replace(one, laws=(*one.laws, *more))


def _module_of(system: TransitionSystem[Any]) -> types.ModuleType:
    kind = type(system)
    module = sys.modules[kind.__module__]
    if getattr(module, kind.__name__, None) is not kind:
        raise InputError(f"specification {system.name}: it is made while it runs, so there is no text to mutate")
    return module


def _place(module: types.ModuleType) -> str:
    return f"{module.__name__.replace('.', '/')}.py"
