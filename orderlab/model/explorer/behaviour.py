"""A behaviour: a finite run of a transition system, step by step, with what changed; a lasso if its end repeats for
ever.

The explorer's witness. It is plain data: JSON both ways, and a numbered story for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from orderlab.model.spec.transition_system import Label, TransitionSystem

Change = tuple[str, Any, Any]
"""The place in the state, and its value before and after."""


@dataclass(frozen=True)
class Step:
    """Who did what, and the places of the state that changed."""

    actor: str
    action: str
    arguments: Mapping[str, Any]
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.actor}: {self.action}" + (f"({given})" if given else "")


@dataclass(frozen=True)
class Behaviour:
    """`loop_start` is None for a finite run. Else the steps from that index on repeat for ever; when it is the number of
    steps, the system stays in its last state for ever."""

    initial: Mapping[str, Any]
    steps: tuple[Step, ...]
    loop_start: int | None = None
    statement: str = ""
    """What the law that it breaks says."""
    why: str = ""
    """One sentence: what of the behaviour breaks the law."""

    @property
    def switches(self) -> int:
        """How often the next step is another process's."""
        return sum(one.actor != other.actor for one, other in zip(self.steps, self.steps[1:], strict=False))

    def to_json(self) -> dict[str, Any]:
        return {
            "initial": dict(self.initial),
            "steps": [
                {
                    "actor": step.actor,
                    "action": step.action,
                    "arguments": dict(step.arguments),
                    "changes": [{"place": p, "before": b, "after": a} for p, b, a in step.changes],
                }
                for step in self.steps
            ],
            "loop_start": self.loop_start,
            "statement": self.statement,
            "why": self.why,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Behaviour:
        steps = [
            Step(
                step["actor"],
                step["action"],
                dict(step["arguments"]),
                tuple((c["place"], c["before"], c["after"]) for c in step["changes"]),
            )
            for step in data["steps"]
        ]
        said = (data.get("statement", ""), data.get("why", ""))
        return Behaviour(dict(data["initial"]), tuple(steps), data["loop_start"], *said)


class Run(NamedTuple):
    """An initial state and the labelled states after it, as the system has them. With `loop_start` the steps from that
    index on repeat for ever; a liveness obligation begins after `obliged_at` steps."""

    first: Any
    steps: list[tuple[Label, Any]]
    loop_start: int | None = None
    obliged_at: int = 0

    @property
    def states(self) -> list[Any]:
        return [self.first, *(state for _, state in self.steps)]


def behaviour(system: TransitionSystem[Any], run: Run, statement: str = "", why: str = "") -> Behaviour:
    """Describe a run."""
    initial = before = dict(system.describe(run.first))
    steps = []
    for label, state in run.steps:
        after = dict(system.describe(state))
        steps.append(Step(label.actor, label.action, dict(label.arguments), tuple(changes("", before, after))))
        before = after
    return Behaviour(initial, tuple(steps), run.loop_start, statement, why)


def changes(place: str, before: Any, after: Any) -> Iterator[Change]:
    """Where two described states differ, as deep down as both have the same shape."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(k for k in after if k not in before)]:
            inner = f"{place}.{key}" if place else str(key)
            yield from changes(inner, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from changes(f"{place}[{at}]", one, other)
    elif before != after:
        yield place, before, after


def story(told: Behaviour) -> list[str]:
    """The behaviour as numbered lines, each step followed by what it changed."""
    lines = ["0. initially: " + ", ".join(f"{name} = {shown(value)}" for name, value in told.initial.items())]
    for number, step in enumerate(told.steps, 1):
        if told.loop_start == number - 1:
            lines.append("   from here on, for ever:")
        lines.append(f"{number}. {step}")
        lines += [f"     {place}: {shown(before)} -> {shown(after)}" for place, before, after in step.changes]
        if not step.changes:
            lines.append("     (nothing changes)")
    if told.loop_start is not None:
        stays = told.loop_start == len(told.steps)
        lines.append("   and stays there for ever" if stays else f"   then again from step {told.loop_start + 1}")
    return lines


def shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(shown(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    return str(value)
