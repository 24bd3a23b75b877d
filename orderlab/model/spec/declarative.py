"""Declarative specifications: a class with variables, initial states, named actions, laws and fairness.

The text is plain Python over named variables of finite domain, as a reader of TLA+ expects it. An action says what it
requires (its guard), then assigns; assignments take effect at once, so later lines see earlier ones. The same text is
interpreted here and compiled by `orderlab.model.explorer.compiled.space`; tests hold that both agree.

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
from difflib import get_close_matches
from enum import EnumMeta
from functools import cached_property, partial
from itertools import product
from math import prod
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from orderlab.model.errors import InputError
from orderlab.model.spec.declarations import (
    Action,
    ConstraintDeclaration,
    Declaration,
    FairnessDeclaration,
    GuardNotMet,
    InvariantDeclaration,
    LeadsToDeclaration,
    SometimesDeclaration,
    StepInvariantDeclaration,
    applied,
    arrived,
    bound_name,
    check_comparisons,
    check_parameters,
    law_name,
    placed,
    ran,
    same_step,
    step_of,
)
from orderlab.model.spec.transition_system import (
    Constraint,
    Expansion,
    Fairness,
    Footprint,
    Invariant,
    Label,
    Law,
    LeadsTo,
    Place,
    Sometimes,
    StepInvariant,
    StrongFairness,
    TransitionSystem,
    WeakFairness,
    texts_behind,
)
from orderlab.model.spec.variables import (
    Array,
    Domain,
    Draft,
    IndexSet,
    Schema,
    SpecificationError,
    State,
    StateTuple,
    every_value,
    exchanged,
    exchanged_footprint,
    renamed,
    symmetric_sets,
    values_of,
)

INITIAL_STATES_AT_MOST = 10_000_000
SHOWN_AT_MOST = 8
"""Places told of a state that breaks a law."""


class ActionInstance(NamedTuple):
    """An action with its parameters bound."""

    declaration: Action
    arguments: tuple[int, ...]
    label: Label


D = TypeVar("D")

_DECLARATIONS = (Declaration, LeadsToDeclaration, FairnessDeclaration)


_ALWAYS_JUDGED = ("no-deadlock", "coverage")
_MEANT_TO_BE_WRITTEN = frozenset(
    [
        "variables",
        "initial",
        "starts_anywhere",
        "terminal",
        "fairness",
        "action_names",
        "laws",
        "describe",
        "parameters",
        "source_text",
        "constraints",
        "successors",
        "expansion",
        "canonical",
        "is_terminal",
        "initial_states",
        "model_post_init",
        "__init__",
        "__str__",
        "__repr__",
        "__eq__",
        "__hash__",
    ]
)


class Specification(BaseModel, TransitionSystem[StateTuple]):
    """Base of declarative specifications. Fields are parameters (typed, validated); methods are the text."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=_DECLARATIONS)

    name: ClassVar[str] = "specification"

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Raises SpecificationError for an action or a law that would hide a method of this class, or that names its
        parameters otherwise than its declaration does."""
        for name, value in vars(cls).items():
            if isinstance(value, Declaration):
                check_parameters(cls.__name__, value)
            if isinstance(value, _DECLARATIONS) and law_name(name) in _ALWAYS_JUDGED:
                raise SpecificationError(
                    f"{cls.__name__}.{name}: every specification has a law {law_name(name)} of its own; choose "
                    "another name"
                )
            meant = name in _MEANT_TO_BE_WRITTEN and not isinstance(value, _DECLARATIONS)
            hides = hasattr(Specification, name) and not meant
            if hides and (isinstance(value, _DECLARATIONS) or inspect.isfunction(value)):
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
        variables = self.variables()
        if not isinstance(variables, Mapping) or not variables:
            raise placed(self.variables, "variables: returns no variables; return a dictionary from names to domains")
        for name, kind in variables.items():
            if hasattr(Draft, name):
                raise placed(
                    self.variables, f"variables: {name} is a name that every state has already; choose another"
                )
            if not isinstance(kind, Domain | Array):
                wrong = f"variables: {name} is {kind!r}, no domain"
                raise placed(self.variables, f"{wrong}; use integer, boolean, choice, element or Array")
        schema = Schema(variables)
        for owner in type(self).__mro__:
            if owner is not Specification and issubclass(owner, Specification):
                check_comparisons(owner, schema.names, schema.optional)
        return schema

    def declared(self, kind: type[D]) -> list[D]:
        """The declarations of one kind in order of definition; an override keeps the place of what it overrides."""
        found: dict[str, Any] = {}
        for owner in reversed(type(self).__mro__):
            for name, value in vars(owner).items():
                if isinstance(value, _DECLARATIONS) or name in found:
                    found[name] = value
        return [value for value in found.values() if isinstance(value, kind)]

    def range_of(self, name: str) -> Sequence[int]:
        values = getattr(self, name, None)
        if values is None:
            raise SpecificationError(f'{type(self).__name__}: a parameter ranges over "{name}", which is no attribute')
        several = isinstance(values, EnumMeta | Iterable)
        if isinstance(values, Iterator):
            raise SpecificationError(
                f"{type(self).__name__}.{name}: an iterator, which is empty after its first use; make it a tuple"
            )
        members = list(values) if several else [values]
        for member in members:
            if not isinstance(member, Integral | str) and member != int(member):
                raise SpecificationError(
                    f"{type(self).__name__}.{name}: {member!r} is no integer; parameters range over integers"
                )
        return [int(member) for member in members] if several else list(range(int(values)))

    def bindings(self, declaration: Declaration | LeadsToDeclaration) -> Iterator[tuple[int, ...]]:
        return product(*(self.range_of(name) for name in declaration.ranges.values()))

    @cached_property
    def action_instances(self) -> list[ActionInstance]:
        """Every action with every binding, in the order in which both engines try them."""
        found = []
        for declaration in self.declared(Action):
            for binding in self.bindings(declaration):
                given = tuple(zip(declaration.ranges, binding, strict=True))
                try:
                    actor = declaration.actor.format(**dict(given))
                except (LookupError, ValueError, AttributeError):
                    wrong = f'actor="{declaration.actor}" names something that is no parameter of {declaration.name}'
                    raise placed(declaration.method, f"{wrong}; name only {', '.join(dict(given)) or 'none'}") from None
                label = Label(actor, declaration.name, given)
                found.append(ActionInstance(declaration, binding, label))
        return found

    def initial_states(self) -> Iterable[StateTuple]:
        schema = self.schema_of_state
        draft, unmet = Draft(schema, tuple(schema.lowest())), GuardNotMet.raised
        try:
            result = self.initial(draft)  # type: ignore[func-returns-value]
        except GuardNotMet:
            raise placed(self.initial, "initial: require in initial; it only assigns") from None
        except Exception as error:
            error.add_note("in initial")
            raise
        arrived(self.initial, unmet)
        if result is not None:
            ran(self.initial, result)
        start = dict(zip(schema.names, draft._values, strict=True))
        for name in self.starts_anywhere():
            if name not in schema.variables:
                raise schema.unknown(name)
        many = prod(values_of(schema.variables[name]) for name in self.starts_anywhere())
        if many > INITIAL_STATES_AT_MOST:
            raise SpecificationError(
                f"starts_anywhere: {many:,} initial states; at most {INITIAL_STATES_AT_MOST:,} can be entered,"
                " so narrow the domains"
            )
        free = {name: every_value(schema.variables[name]) for name in self.starts_anywhere()}
        return [tuple({**start, **dict(zip(free, chosen, strict=True))}.values()) for chosen in product(*free.values())]

    def successors(self, state: StateTuple) -> Iterable[tuple[Label, StateTuple]]:
        schema = self.schema_of_state
        for instance in self.action_instances:
            draft, unmet = Draft(schema, state), GuardNotMet.raised
            try:
                result = instance.declaration.method(self, draft, *instance.arguments)
            except GuardNotMet:
                continue
            except Exception as error:
                raise self._at_state(error, f"in action {instance.label}", state) from None
            if GuardNotMet.raised != unmet:
                arrived(instance.declaration.method, unmet)
            if result is not None:
                ran(instance.declaration.method, result)
            yield instance.label, tuple(draft._values)

    def expansion(self, state: StateTuple) -> Expansion:
        steps = []
        waiting: dict[str, set[Place]] = {}
        for instance in self.action_instances:
            draft = Draft(self.schema_of_state, state, recording=True)
            enabled, unmet = True, GuardNotMet.raised
            try:
                result = instance.declaration.method(self, draft, *instance.arguments)
            except GuardNotMet:
                enabled = False
            except Exception as error:
                raise self._at_state(error, f"in action {instance.label}", state) from None
            if enabled:
                arrived(instance.declaration.method, unmet)
            if enabled and result is not None:
                ran(instance.declaration.method, result)
            reads, writes = draft._reads, draft._writes
            assert reads is not None
            assert writes is not None
            waiting.setdefault(instance.label.actor, set()).update(reads)
            if enabled:
                touched = Footprint(frozenset(reads), frozenset(writes))
                steps.append((instance.label._replace(footprint=touched), tuple(draft._values)))
        return Expansion(steps, {actor: frozenset(places) for actor, places in waiting.items()})

    def _view(self, state: StateTuple, recording: bool = False) -> Draft:
        """The state for a law or a predicate to look at."""
        return Draft(self.schema_of_state, state, recording, writable=False)

    def _at_state(self, error: Exception, what: str, *states: StateTuple) -> Exception:
        """The error with a note of where in the specification, and in which state, it came up."""
        shown = " and then ".join(
            ", ".join(f"{name} = {value}" for name, value in self.describe(state).items()) for state in states
        )
        error.add_note(f"{what}, with {shown}" if shown else what)
        return error

    def _judged(self, method: Callable[..., Any], states: Sequence[Draft], binding: Sequence[int], bound: bool) -> bool:
        """What a law or a predicate says. Raises SpecificationError if that is no truth value."""
        name, unmet = method.__name__, GuardNotMet.raised
        try:
            answer = method(*states, *binding) if bound else method(self, *states, *binding)
        except GuardNotMet:
            raise placed(method, f"{name}: require in a law or a predicate; return the condition instead") from None
        except Exception as error:
            given = f"({', '.join(map(str, binding))})" if binding else ""
            raise self._at_state(error, f"in {name}{given}", *(tuple(d._values) for d in states)) from None
        if GuardNotMet.raised != unmet:
            arrived(method, unmet)
        if answer is True or answer is False:
            return answer
        if not isinstance(answer, Integral | np.bool_):
            raise placed(method, f"{name}: returned {answer!r}, which is neither true nor false; return a comparison")
        return bool(answer)

    def _predicate(
        self, name: str, asked_by: Callable[..., Any] | None = None, given: Iterable[str] | None = None
    ) -> Any:
        """A method of the specification by name, which takes a state and the parameters that are `given` (None: any).

        Raises SpecificationError, with the nearest name, if there is none, and if it takes something else.
        """
        found = getattr(self, name, None)
        if isinstance(found, _DECLARATIONS):
            raise SpecificationError(
                f"{type(self).__name__}: {name} is declared as something else; a predicate is a plain method"
            )
        if not callable(found):
            known = [n for owner in type(self).__mro__[:-1] for n, v in vars(owner).items() if inspect.isfunction(v)]
            near = get_close_matches(name, known, 1)
            cure = f'did you mean "{near[0]}"?' if near else "define it: def NAME(self, s), true or false of a state"
            wrong = f'{type(self).__name__}: no predicate "{name}"; {cure}'
            raise SpecificationError(wrong) if asked_by is None else placed(asked_by, wrong)
        if given is None:
            return found
        given = list(given)
        try:
            inspect.signature(found).bind(None, *given)
        except TypeError:
            takes = ", ".join(list(inspect.signature(found).parameters)[1:]) or "none"
            wrong = (
                f"{type(self).__name__}: the predicate {name} is asked of a state with the parameters"
                f" {', '.join(given) or 'none'}, but takes {takes}; let both be the same"
            )
            raise (SpecificationError(wrong) if asked_by is None else placed(asked_by, wrong)) from None
        return found

    def truth_of(self, predicate: str, state: StateTuple, *arguments: int) -> bool:
        """The truth of a predicate method in a state."""
        return self._judged(self._predicate(predicate), [self._view(state)], arguments, bound=True)

    def is_terminal(self, state: StateTuple) -> bool:
        return self._judged(self.terminal, [self._view(state)], (), bound=True)

    def constraints(self) -> Sequence[Constraint[StateTuple]]:
        return [self._constraint(d.name, d.method.__get__(self)) for d in self.declared(ConstraintDeclaration)]

    def constraint_named(self, name: str) -> Constraint[StateTuple]:
        try:
            method = self._predicate(name, given=())
        except SpecificationError as error:
            raise InputError(f"--constraint {name}: {error}") from None
        return self._constraint(name, method)

    def _constraint(self, name: str, method: Callable[..., Any]) -> Constraint[StateTuple]:
        return Constraint(name, lambda state: self._judged(method, [self._view(state)], (), bound=True))

    def unbound_laws(self) -> Sequence[str]:
        laws: list[Declaration | LeadsToDeclaration] = [
            *self.declared(InvariantDeclaration),
            *self.declared(StepInvariantDeclaration),
            *self.declared(SometimesDeclaration),
            *self.declared(LeadsToDeclaration),
        ]
        return [law_name(law.name) for law in laws if next(self.bindings(law), None) is None]

    def exchanges(self, state: StateTuple) -> Iterable[tuple[str, StateTuple]]:
        for index in symmetric_sets(self.schema_of_state):
            for member in range(index.size - 1):
                new_names = tuple(exchanged(one, member) for one in index)
                names = f"{index.name} {member} and {index.name} {member + 1}"
                yield names, renamed(self.schema_of_state, state, {index: new_names})

    def exchanges_of_footprints(self) -> Sequence[Callable[[str, frozenset[Place]], tuple[str, frozenset[Place]]]]:
        schema = self.schema_of_state
        return [
            partial(exchanged_footprint, schema, index, member, self._exchanged_actors(index, member))
            for index in symmetric_sets(schema)
            for member in range(index.size - 1)
        ]

    def _exchanged_actors(self, index: IndexSet, member: int) -> Mapping[str, str]:
        """Who each process is after two neighbouring members have exchanged their names."""
        actors = {(one.declaration.name, one.arguments): one.label.actor for one in self.action_instances}
        found = {"": ""}
        for one in self.action_instances:
            ranges = [getattr(self, name) for name in one.declaration.ranges.values()]
            pairs = zip(ranges, one.arguments, strict=True)
            binding = tuple(exchanged(value, member) if over == index else value for over, value in pairs)
            image = actors[one.declaration.name, binding]
            if found.setdefault(one.label.actor, image) != image:
                raise NotImplementedError(
                    f'{self.name}: the process "{one.label.actor}" takes steps of several members of {index.name}'
                )
        return found

    def describe(self, state: StateTuple) -> Mapping[str, Any]:
        return self.schema_of_state.describe(state)

    def parameters(self) -> Mapping[str, Any]:
        return self.model_dump(mode="json")

    def action_names(self) -> Sequence[str]:
        return [declaration.name for declaration in self.declared(Action)]

    def source_text(self) -> str:
        variables = "\n".join(f"{name}: {kind}" for name, kind in self.schema_of_state.variables.items())
        owners = [owner for owner in type(self).__mro__ if issubclass(owner, Specification)]
        classes = [inspect.getsource(owner) for owner in owners]
        return "\n".join([*classes, *texts_behind(owner.__module__ for owner in type(self).__mro__), variables])

    def canonical(self, state: StateTuple) -> StateTuple:
        from orderlab.model.spec.variables import canonical_state

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
        for declared in self.declared(LeadsToDeclaration):
            for predicate in filter(None, (declared.when, declared.then)):
                self._predicate(predicate, given=declared.ranges)
        found += [self._step_invariant(d) for d in self.declared(StepInvariantDeclaration)]
        found += [self._goal(d) for d in self.declared(SometimesDeclaration)]
        for declaration in self.declared(LeadsToDeclaration):
            found += [self._leads_to(declaration, binding) for binding in self.bindings(declaration)]
        return found

    def fairness(self) -> Sequence[Fairness]:
        found: list[Fairness] = []
        for instance in self.action_instances:
            if fair := instance.declaration.fair:
                kind = StrongFairness if fair == "strong" else WeakFairness
                found.append(kind(str(instance.label), same_step(instance.label)))
        for declaration in self.declared(FairnessDeclaration):
            found += self._group_fairness(declaration)
        return found

    def _group_fairness(self, declaration: FairnessDeclaration) -> Iterator[Fairness]:
        actions = {action.name: action for action in self.declared(Action)}
        place = f"{type(self).__name__}.{declaration.name}"
        if not declaration.actions:
            raise SpecificationError(f"{place}: names no action; name at least one")
        for name in declaration.actions:
            if name not in actions:
                near = get_close_matches(name, list(actions), 1)
                cure = f'did you mean "{near[0]}"?' if near else f"the actions are {', '.join(actions)}"
                raise SpecificationError(f'{place}: no action "{name}"; {cure}')
            for parameter in declaration.ranges:
                if parameter not in actions[name].ranges:
                    raise SpecificationError(f"{place}: action {name} has no parameter {parameter}; leave it out")
        kind = StrongFairness if declaration.strong else WeakFairness
        for binding in product(*(self.range_of(name) for name in declaration.ranges.values())):
            given = dict(zip(declaration.ranges, binding, strict=True))
            shown = ", ".join(f"{name}={value}" for name, value in given.items())
            yield kind(declaration.name + (f"({shown})" if shown else ""), step_of(set(declaration.actions), given))

    def _invariant(self, declaration: InvariantDeclaration) -> Invariant[StateTuple]:
        bindings = list(self.bindings(declaration))
        when = (
            None
            if declaration.when is None
            else self._predicate(declaration.when, declaration.method, declaration.ranges)
        )

        def judge(draft: Draft) -> bool:
            for binding in bindings:
                met = when is None or self._judged(when, [draft], binding, bound=True)
                if met and not self._judged(declaration.method, [draft], binding, bound=False):
                    return False
            return True

        def antecedent(state: StateTuple) -> bool:
            assert when is not None
            return any(self._judged(when, [self._view(state)], binding, bound=True) for binding in bindings)

        def why(state: StateTuple) -> str:
            for binding in bindings:
                draft = self._view(state, recording=True)
                if when is not None and not self._judged(when, [draft], binding, bound=True):
                    continue
                if not self._judged(declaration.method, [draft], binding, bound=False):
                    return self._seen(declaration, binding, [("", draft)])
            return ""

        return Invariant(
            law_name(declaration.name),
            lambda state: judge(self._view(state)),
            antecedent if declaration.when else None,
            lambda state: self._reads(judge, state),
            declaration.statement,
            why=why,
        )

    def _reads(self, judge: Callable[[Draft], bool], state: StateTuple) -> frozenset[Place]:
        draft = self._view(state, recording=True)
        judge(draft)
        assert draft._reads is not None
        return frozenset(draft._reads)

    def _step_invariant(self, declaration: StepInvariantDeclaration) -> StepInvariant[StateTuple]:
        bindings = list(self.bindings(declaration))

        def holds(before: StateTuple, _: Label, after: StateTuple) -> bool:
            pair = [self._view(before), self._view(after)]
            return all(self._judged(declaration.method, pair, binding, bound=False) for binding in bindings)

        def why(before: StateTuple, _: Label, after: StateTuple) -> str:
            for binding in bindings:
                pair = [self._view(before, recording=True), self._view(after, recording=True)]
                if not self._judged(declaration.method, pair, binding, bound=False):
                    return self._seen(declaration, binding, [("before: ", pair[0]), ("after: ", pair[1])])
            return ""

        return StepInvariant(law_name(declaration.name), holds, declaration.statement, why)

    def _seen(self, declaration: Declaration, binding: Sequence[int], drafts: Sequence[tuple[str, Draft]]) -> str:
        """What a law looked at in a state that breaks it."""
        told = []
        for when, draft in drafts:
            read: set[Any] = draft._reads or set()
            places = sorted(read, key=lambda place: (self.schema_of_state.position[place[0]], place))
            shown = [self.schema_of_state.show_place(tuple(draft._values), place) for place in places[:SHOWN_AT_MOST]]
            more = len(places) - len(shown)
            told.append(when + ", ".join(shown) + (f" and {more} more" if more else ""))
        given = ", ".join(f"{n}={v}" for n, v in zip(declaration.ranges, binding, strict=True))
        return (f"for {given}: " if given else "") + "; ".join(told)

    def _goal(self, declaration: SometimesDeclaration) -> Sometimes[StateTuple]:
        bindings = list(self.bindings(declaration))

        def judge(draft: Draft) -> bool:
            return any(self._judged(declaration.method, [draft], binding, bound=False) for binding in bindings)

        return Sometimes(
            law_name(declaration.name),
            lambda state: judge(self._view(state)),
            lambda state: self._reads(judge, state),
            declaration.statement,
        )

    def _leads_to(self, declaration: LeadsToDeclaration, binding: tuple[int, ...]) -> LeadsTo[StateTuple]:
        when = declaration.when
        return LeadsTo(
            bound_name(declaration, binding),
            lambda state: self.truth_of(declaration.then, state, *binding),
            None if when is None else lambda state: self.truth_of(when, state, *binding),
            declaration.statement,
            "" if when is None else applied(when, declaration, binding),
            applied(declaration.then, declaration, binding),
        )
