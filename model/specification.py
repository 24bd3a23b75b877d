"""Declarative specifications: a class with variables, initial states, named actions, laws and fairness.

The text is plain Python over named variables of finite domain, laid out as a reader of TLA+ expects. An action says
what it requires (its guard), then assigns; assignments take effect at once, so later lines see earlier ones. The same
text is interpreted here and compiled by `model.explorer.compiled`; both engines must agree, which tests check.

    class Counter(Specification):
        name = "counter"
        limit: int = 3

        def variables(self):
            return {"count": integer(0, self.limit)}

        @action(actor="clock")
        def tick(self, s):
            require(s.count < self.limit)
            s.count += 1
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import EnumMeta
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from model.state import Array, Domain, Draft, Schema, SpecificationError, State, StateTuple, every_value
from model.transition_system import (
    Expansion,
    Footprint,
    Invariant,
    Label,
    Law,
    LeadsTo,
    Place,
    Sometimes,
    StepInvariant,
    TransitionSystem,
    WeakFairness,
)


class GuardNotMet(Exception):
    """The action is not enabled in this state."""


def require(guard: Any) -> None:
    """A conjunct of an action's guard. State the guard before the first assignment."""
    if not guard:
        raise GuardNotMet


class Declaration:
    """A method that plays a part in the specification, with the sets that its parameters range over."""

    def __init__(self, method: Callable[..., Any], ranges: Mapping[str, str]):
        self.method = method
        self.ranges = dict(ranges)
        self.name = method.__name__
        self.statement = inspect.cleandoc(method.__doc__ or "")


class Action(Declaration):
    actor: str = ""
    fair: bool = False


class InvariantDeclaration(Declaration):
    when: str | None = None


class StepInvariantDeclaration(Declaration):
    pass


class SometimesDeclaration(Declaration):
    pass


class LeadsToDeclaration:
    def __init__(self, when: str | None, then: str, ranges: Mapping[str, str], statement: str):
        self.when, self.then, self.ranges, self.statement = when, then, dict(ranges), statement
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def action(*, actor: str, fair: bool = False, **ranges: str) -> Callable[[Callable[..., None]], Action]:
    """Declare a named action. `ranges` maps each parameter to the attribute that holds its set.

    `actor` names the process that takes the step and may mention parameters: "manager {rm}". With `fair`, the action
    is weakly fair for each binding of its parameters.
    """

    def declare(method: Callable[..., None]) -> Action:
        made = Action(method, ranges)
        made.actor, made.fair = actor, fair
        return made

    return declare


def invariant(*, when: str | None = None, **ranges: str) -> Callable[[Callable[..., Any]], InvariantDeclaration]:
    """Declare a law of every state, for all bindings of its parameters. `when` names the predicate that is its
    antecedent."""

    def declare(method: Callable[..., Any]) -> InvariantDeclaration:
        made = InvariantDeclaration(method, ranges)
        made.when = when
        return made

    return declare


def step_invariant(**ranges: str) -> Callable[[Callable[..., Any]], StepInvariantDeclaration]:
    """Declare a law of every step: the method sees the state before and the state after."""
    return lambda method: StepInvariantDeclaration(method, ranges)


def sometimes(**ranges: str) -> Callable[[Callable[..., Any]], SometimesDeclaration]:
    """Declare a goal: for some binding of its parameters, some reachable state meets it."""
    return lambda method: SometimesDeclaration(method, ranges)


def leads_to(when: str, then: str, statement: str = "", **ranges: str) -> LeadsToDeclaration:
    """Declare `when` leads to `then` (both predicates by name), for each binding of the parameters."""
    return LeadsToDeclaration(when, then, ranges, statement)


def eventually(then: str, statement: str = "", **ranges: str) -> LeadsToDeclaration:
    """Declare that every fair behaviour from an initial state comes to `then`."""
    return LeadsToDeclaration(None, then, ranges, statement)


class ActionInstance(NamedTuple):
    """An action with its parameters bound."""

    declaration: Action
    arguments: tuple[int, ...]
    label: Label


D = TypeVar("D")

_DECLARATIONS = (Declaration, LeadsToDeclaration)


class Specification(BaseModel, TransitionSystem[StateTuple]):
    """Base of declarative specifications. Fields are parameters (typed, validated); methods are the text."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=_DECLARATIONS)

    name: ClassVar[str] = "specification"

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Raises SpecificationError for an action or a law that would hide a method of this class."""
        for name, value in vars(cls).items():
            if isinstance(value, _DECLARATIONS) and hasattr(Specification, name):
                raise SpecificationError(
                    f"{cls.__name__}.{name}: Specification has a method of this name; choose another"
                )

    def variables(self) -> Mapping[str, Domain | Array]:
        raise NotImplementedError

    def initial(self, s: State) -> None:
        """Assign what does not start at the low end of its domain."""

    def starts_anywhere(self) -> Sequence[str]:
        """The variables that start with any value of their domain: one initial state for each combination."""
        return ()

    def terminal(self, s: State) -> bool:
        """Whether stopping in this state is right."""
        return False

    # What follows is the interpreter.

    @cached_property
    def schema_of_state(self) -> Schema:
        return Schema(self.variables())

    def declared(self, kind: type[D]) -> list[D]:
        """The declarations of one kind in order of definition; an override keeps the place of what it overrides."""
        found: dict[str, Any] = {}
        for owner in reversed(type(self).__mro__):
            for name, value in vars(owner).items():
                if isinstance(value, _DECLARATIONS) or name in found:
                    found[name] = value
        return [value for value in found.values() if isinstance(value, kind)]

    def range_of(self, name: str) -> Sequence[int]:
        values = getattr(self, name)
        return [int(v) for v in values] if isinstance(values, (EnumMeta, Iterable)) else list(range(int(values)))

    def bindings(self, declaration: Declaration | LeadsToDeclaration) -> Iterator[tuple[int, ...]]:
        return product(*(self.range_of(name) for name in declaration.ranges.values()))

    @cached_property
    def action_instances(self) -> list[ActionInstance]:
        """Every action with every binding, in the order in which both engines try them."""
        found = []
        for declaration in self.declared(Action):
            for binding in self.bindings(declaration):
                given = tuple(zip(declaration.ranges, binding, strict=True))
                label = Label(declaration.actor.format(**dict(given)), declaration.name, given)
                found.append(ActionInstance(declaration, binding, label))
        return found

    def initial_states(self) -> Iterable[StateTuple]:
        draft = Draft(self.schema_of_state, tuple(self.schema_of_state.lowest()))
        self.initial(draft)
        start = dict(zip(self.schema_of_state.names, draft._values, strict=True))
        free = {name: every_value(self.schema_of_state.variables[name]) for name in self.starts_anywhere()}
        return [tuple({**start, **dict(zip(free, chosen, strict=True))}.values()) for chosen in product(*free.values())]

    def successors(self, state: StateTuple) -> Iterable[tuple[Label, StateTuple]]:
        for instance in self.action_instances:
            draft = Draft(self.schema_of_state, state)
            try:
                instance.declaration.method(self, draft, *instance.arguments)
            except GuardNotMet:
                continue
            yield instance.label, tuple(draft._values)

    def expansion(self, state: StateTuple) -> Expansion:
        steps = []
        waiting: dict[str, set[Place]] = {}
        for instance in self.action_instances:
            draft = Draft(self.schema_of_state, state, recording=True)
            enabled = True
            try:
                instance.declaration.method(self, draft, *instance.arguments)
            except GuardNotMet:
                enabled = False
            reads, writes = draft._reads, draft._writes
            assert reads is not None
            assert writes is not None
            waiting.setdefault(instance.label.actor, set()).update(reads)
            if enabled:
                touched = Footprint(frozenset(reads), frozenset(writes))
                steps.append((instance.label._replace(footprint=touched), tuple(draft._values)))
        return Expansion(steps, {actor: frozenset(places) for actor, places in waiting.items()})

    def ask(self, predicate: str, state: StateTuple, *arguments: int) -> bool:
        """The truth of a predicate method in a state."""
        return bool(getattr(self, predicate)(Draft(self.schema_of_state, state), *arguments))

    def is_terminal(self, state: StateTuple) -> bool:
        return bool(self.terminal(Draft(self.schema_of_state, state)))

    def describe(self, state: StateTuple) -> Mapping[str, Any]:
        return self.schema_of_state.describe(state)

    def parameters(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json")

    def action_names(self) -> Sequence[str]:
        return [declaration.name for declaration in self.declared(Action)]

    def source_text(self) -> str:
        owners = [owner for owner in type(self).__mro__ if issubclass(owner, Specification)]
        return "\n".join(inspect.getsource(owner) for owner in owners)

    def canonical(self, state: StateTuple) -> StateTuple:
        from model.explorer.symmetry import canonical_state

        return canonical_state(self.schema_of_state, state)

    def laws_with_antecedent(self) -> set[str]:
        return {law_name(d.name) for d in self.declared(InvariantDeclaration) if d.when}

    @cached_property
    def liveness_predicates(self) -> dict[tuple[str, str], str]:
        """(law, "when" or "then") -> the predicate and its binding, as the compiled engine names it."""
        found = {}
        for declaration in self.declared(LeadsToDeclaration):
            for binding in self.bindings(declaration):
                name = bound_name(declaration, binding)
                for side, predicate in (("when", declaration.when), ("then", declaration.then)):
                    if predicate is not None:
                        found[name, side] = f"{predicate}{binding}"
        return found

    def laws(self) -> Sequence[Law]:
        found: list[Law] = [self._invariant(d) for d in self.declared(InvariantDeclaration)]
        found += [self._step_invariant(d) for d in self.declared(StepInvariantDeclaration)]
        found += [self._goal(d) for d in self.declared(SometimesDeclaration)]
        for declaration in self.declared(LeadsToDeclaration):
            found += [self._leads_to(declaration, binding) for binding in self.bindings(declaration)]
        return found

    def fairness(self) -> Sequence[WeakFairness]:
        found = []
        for instance in self.action_instances:
            if instance.declaration.fair:
                found.append(WeakFairness(str(instance.label), _same_step(instance.label)))
        return found

    def _invariant(self, declaration: InvariantDeclaration) -> Invariant[StateTuple]:
        bindings = list(self.bindings(declaration))

        def judge(draft: Draft) -> bool:
            for binding in bindings:
                met = declaration.when is None or getattr(self, declaration.when)(draft, *binding)
                if met and not declaration.method(self, draft, *binding):
                    return False
            return True

        def antecedent(state: StateTuple) -> bool:
            assert declaration.when is not None
            return any(self.ask(declaration.when, state, *binding) for binding in bindings)

        return Invariant(
            law_name(declaration.name),
            lambda state: judge(Draft(self.schema_of_state, state)),
            antecedent if declaration.when else None,
            lambda state: self._reads(judge, state),
            declaration.statement,
        )

    def _reads(self, judge: Callable[[Draft], bool], state: StateTuple) -> frozenset[Place]:
        draft = Draft(self.schema_of_state, state, recording=True)
        judge(draft)
        assert draft._reads is not None
        return frozenset(draft._reads)

    def _step_invariant(self, declaration: StepInvariantDeclaration) -> StepInvariant[StateTuple]:
        bindings = list(self.bindings(declaration))

        def holds(before: StateTuple, _: Label, after: StateTuple) -> bool:
            one, two = Draft(self.schema_of_state, before), Draft(self.schema_of_state, after)
            return all(declaration.method(self, one, two, *binding) for binding in bindings)

        return StepInvariant(law_name(declaration.name), holds, declaration.statement)

    def _goal(self, declaration: SometimesDeclaration) -> Sometimes[StateTuple]:
        bindings = list(self.bindings(declaration))

        def judge(draft: Draft) -> bool:
            return any(declaration.method(self, draft, *binding) for binding in bindings)

        return Sometimes(
            law_name(declaration.name),
            lambda state: judge(Draft(self.schema_of_state, state)),
            lambda state: self._reads(judge, state),
            declaration.statement,
        )

    def _leads_to(self, declaration: LeadsToDeclaration, binding: tuple[int, ...]) -> LeadsTo[StateTuple]:
        when = declaration.when
        return LeadsTo(
            bound_name(declaration, binding),
            lambda state: self.ask(declaration.then, state, *binding),
            None if when is None else lambda state: self.ask(when, state, *binding),
            declaration.statement,
        )


def law_name(method: str) -> str:
    return method.replace("_", "-")


def bound_name(declaration: LeadsToDeclaration, binding: tuple[int, ...]) -> str:
    given = ", ".join(f"{n}={v}" for n, v in zip(declaration.ranges, binding, strict=True))
    return law_name(declaration.name) + (f"({given})" if given else "")


def _same_step(wanted: Label) -> Callable[[Label], bool]:
    return lambda label: label[:3] == wanted[:3]


__all__ = [
    "Action",
    "Specification",
    "SpecificationError",
    "State",
    "action",
    "eventually",
    "invariant",
    "leads_to",
    "require",
    "sometimes",
    "step_invariant",
]
