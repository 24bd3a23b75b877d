"""What a specification declares: actions, laws, goals, constraints and fairness, each by a decorator or in a field."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np

from orderlab.model.spec.comparisons import compared_by_identity, compared_with_none
from orderlab.model.spec.transition_system import (
    Label,
)
from orderlab.model.spec.variables import (
    ArrayView,
    SpecificationError,
)


class GuardNotMet(BaseException):
    """The action is not enabled in this state. No `Exception`, for a text that catches those does not mean this one."""

    raised: ClassVar[int] = 0
    """How often, so that one that never arrives is noticed."""


def require(guard: Any) -> None:
    """A conjunct of an action's guard. State the guard before the first assignment.

    Raises SpecificationError for what is true whatever the state: a generator that no `all` or `any` goes through, a
    method that is not called, an array.
    """
    if guard is True:
        return
    if (
        guard is not False
        and not isinstance(guard, Integral | np.bool_)
        and (callable(guard) or isinstance(guard, Iterator | ArrayView) or inspect.isawaitable(guard))
    ):
        kind = type(guard).__name__ if not isinstance(guard, ArrayView) else "array"
        raise SpecificationError(
            f"require: its guard is a {kind}, which is true in every state; call the method, or wrap all(...) or "
            "any(...)"
        )
    if not guard:
        GuardNotMet.raised += 1
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
    fair: Fair = False


class InvariantDeclaration(Declaration):
    when: str | None = None


class StepInvariantDeclaration(Declaration):
    pass


class SometimesDeclaration(Declaration):
    pass


class ConstraintDeclaration(Declaration):
    pass


class FairnessDeclaration:
    """Actions that are fair together: some step of one of them, for each binding of the shared parameters."""

    def __init__(self, strong: bool, actions: Sequence[str], ranges: Mapping[str, str]):
        self.strong, self.actions, self.ranges = strong, tuple(actions), dict(ranges)
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


class LeadsToDeclaration:
    def __init__(self, when: str | None, then: str, ranges: Mapping[str, str], statement: str):
        self.when, self.then, self.ranges, self.statement = when, then, dict(ranges), statement
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def ran(method: Callable[..., Any], result: Any) -> None:
    """Raises SpecificationError if the call of an action has only made something that would run later."""
    if isinstance(result, Iterator) or inspect.isawaitable(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that nobody waited for it
        raise placed(
            method, f"{method.__name__}: yields or awaits, so a call runs none of it; leave yield and async out"
        )


def arrived(method: Callable[..., Any], unmet: int) -> None:
    """Raises SpecificationError if a guard was not met since `unmet` were counted, and the text caught what ends the
    call."""
    if GuardNotMet.raised != unmet:
        raise placed(
            method,
            f"{method.__name__}: catches what an unmet require raises, and goes on; name the exceptions after except",
        )


def action(*, actor: str, fair: Fair = False, **ranges: str) -> Callable[[Callable[..., None]], Action]:
    """Declare a named action. `ranges` maps each parameter to the attribute that holds its set.

    `actor` names the process that takes the step and may mention parameters: "manager {rm}". With `fair`, the action
    is fair for each binding of its parameters: weakly (True or "weak"), or strongly ("strong").
    """
    if fair not in (True, False, "weak", "strong"):
        raise SpecificationError(f'action(fair={fair!r}): it is True, False, "weak" or "strong"')

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


def constraint() -> Callable[[Callable[..., Any]], ConstraintDeclaration]:
    """Declare what a state must meet to be gone on from (CONSTRAINT of TLC). Laws judge the first states beyond,
    too."""
    return lambda method: ConstraintDeclaration(method, {})


def weak_fairness(*actions: str, **ranges: str) -> FairnessDeclaration:
    """Declare that the actions together are not enabled for ever without a step of one of them (WF of their
    disjunction), for each binding of the parameters, which each of the actions must have."""
    return FairnessDeclaration(False, actions, ranges)


def strong_fairness(*actions: str, **ranges: str) -> FairnessDeclaration:
    """Declare that the actions together are not enabled again and again without a step of one of them (SF of their
    disjunction)."""
    return FairnessDeclaration(True, actions, ranges)


def leads_to(when: str, then: str, statement: str = "", **ranges: str) -> LeadsToDeclaration:
    """Declare `when` leads to `then` (both predicates by name), for each binding of the parameters."""
    return LeadsToDeclaration(when, then, ranges, statement)


def eventually(then: str, statement: str = "", **ranges: str) -> LeadsToDeclaration:
    """Declare that every fair behaviour from an initial state comes to `then`."""
    return LeadsToDeclaration(None, then, ranges, statement)


Fair = bool | Literal["weak", "strong"]


def law_name(method: str) -> str:
    return method.replace("_", "-")


def applied(predicate: str, declaration: LeadsToDeclaration, binding: tuple[int, ...]) -> str:
    given = ", ".join(f"{n}={v}" for n, v in zip(declaration.ranges, binding, strict=True))
    return f"{predicate}({given})" if given else predicate


def bound_name(declaration: LeadsToDeclaration, binding: tuple[int, ...]) -> str:
    given = ", ".join(f"{n}={v}" for n, v in zip(declaration.ranges, binding, strict=True))
    return law_name(declaration.name) + (f"({given})" if given else "")


def same_step(wanted: Label) -> Callable[[Label], bool]:
    return lambda label: label[:3] == wanted[:3]


def step_of(actions: set[str], given: Mapping[str, int]) -> Callable[[Label], bool]:
    return lambda label: label.action in actions and given.items() <= dict(label.arguments).items()


def placed(method: Callable[..., Any], message: str) -> SpecificationError:
    """An error that belongs to a method as a whole, with the line where the method begins."""
    error = SpecificationError(message)
    code = inspect.unwrap(method).__code__
    error.place = (code.co_filename, code.co_firstlineno)
    return error


@lru_cache(maxsize=256)
def check_comparisons(owner: type[object], variables: tuple[str, ...], optional: tuple[str, ...]) -> None:
    """Raises SpecificationError for a text that asks whether a value of the state *is* something, or whether one that
    may be NOBODY equals None.

    Values are integers, whatever the story prints for them: NOBODY is -1, true is 1, a member of an enumeration its
    number. So `s.owner is None`, `s.flag is True` and `s.mode is Mode.IDLE` are false in every state. Only what stands
    in the class itself is looked at, and a text that is not at hand is not.
    """
    for name, value in vars(owner).items():
        method = value.method if isinstance(value, Declaration) else value
        if not inspect.isfunction(method):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
        except (OSError, TypeError, SyntaxError):
            continue
        found = compared_by_identity(tree, variables) or compared_with_none(tree, optional)
        if found is not None:
            raise placed(
                method,
                f"{owner.__name__}.{name}: {ast.unparse(found)}: values of the state are integers, and none of them "
                "is None,"
                " True or a member itself; compare with NOBODY, a number or a member by == (a truth value needs no "
                "comparison)",
            )


def check_parameters(owner: str, declaration: Declaration) -> None:
    states = 2 if isinstance(declaration, StepInvariantDeclaration) else 1
    taken = list(inspect.signature(declaration.method).parameters)[1 + states :]
    if taken != list(declaration.ranges):
        wanted = ", ".join(declaration.ranges) or "no parameters"
        raise placed(
            declaration.method,
            f"{owner}.{declaration.name}: declared with {wanted}, but takes {', '.join(taken) or 'none'} after "
            "the state;"
            " give both the same names in the same order",
        )
