"""Mutants of a specification: its actions with one flaw each, explored; which laws notice?

A law of a specification that notices none of them says nothing that the others do not say, or nothing at all: it is
named. What is mutated is the Python text of the actions and of the functions that they call, in the module of the
specification; its laws, its scope and its rendering are left alone.
"""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from orderlab.properties.mutants.mutant import Mutant, sample
from orderlab.properties.syntax import Change
from orderlab.sim.redis.lua.watchdog import Unfinished, watch


class Text:
    """A module with the bytes of each node."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self._lines = [0]
        for line in source.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """First byte and the byte after the last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> bytes:
        """The bytes of a node."""
        start, end = self.span(node)
        return self.source[start:end]

    def instead(self, node: ast.expr | ast.stmt, text: bytes, said: str) -> Change:
        """Another text in the place of a node."""
        return Change(*self.span(node), text, said)


def guards_negated(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each condition turned round."""
    for guard in _guards(function):
        yield text.instead(guard, b"(not (" + text.of(guard) + b"))", f"not: {_said(text, guard)}")


def guards_dropped(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each condition taken to be met, and each conjunct of one; a branch that only returns the state is left out."""
    for node in ast.walk(function):
        if (
            isinstance(node, ast.If)
            and not node.orelse
            and all(isinstance(one, ast.Return | ast.Continue) for one in node.body)
        ):
            yield text.instead(node, b"pass", f"dropped: if {_said(text, node.test)}")
    for guard in _guards(function):
        yield text.instead(guard, b"True", f"dropped: {_said(text, guard)}")
        for node in ast.walk(guard):
            if isinstance(node, ast.BoolOp):
                neutral = b"True" if isinstance(node.op, ast.And) else b"False"
                for part in node.values:
                    yield text.instead(part, neutral, f"dropped: {_said(text, part)}")


def effects_dropped(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each assignment to a variable of the state, each field that is replaced, each new value of a local again
    given."""
    seen: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
            of_state = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
            if of_state or names & seen or isinstance(node, ast.AugAssign):
                yield text.instead(node, b"pass", f"dropped: {_said(text, node)}")
            seen |= names
        if isinstance(node, ast.Call) and _called(node) == "_replace":
            for keyword in node.keywords:
                yield _without(text, node, keyword)


def constants(text: Text, function: ast.FunctionDef) -> Iterator[Change]:
    """Each whole number one higher and one lower, each truth value turned round."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Constant) or node.value is None:
            continue
        if isinstance(node.value, bool):
            yield text.instead(node, b"%r" % (not node.value), f"{node.value} becomes {not node.value}")
        elif isinstance(node.value, int):
            for other in (node.value + 1, node.value - 1):
                yield text.instead(node, b"(%d)" % other, f"{node.value} becomes {other}")


OPERATORS: dict[str, Callable[[Text, ast.FunctionDef], Iterator[Change]]] = {
    "guard-negated": guards_negated,
    "guard-dropped": guards_dropped,
    "effect-dropped": effects_dropped,
    "constant": constants,
}
"""By name."""


def mutants_of_functions(source: bytes, place: str, roots: Sequence[str], operators: Sequence[str]) -> Iterator[Mutant]:
    """The mutants of the functions ``roots`` and of every function of the module that they call."""
    text = Text(source)
    known = {source}
    for function in reached(text.tree, roots):
        for name in operators:
            for change in OPERATORS[name](text, function):
                mutated = source[: change.start] + change.replacement + source[change.end :]
                if mutated in known or not _compiles(mutated):
                    continue
                known.add(mutated)
                line = source.count(b"\n", 0, change.start) + 1
                before = source[change.start : change.end]
                yield Mutant(
                    place, name, change.said, change.start, change.end, line, before, change.replacement, mutated
                )


def reached(tree: ast.Module, roots: Sequence[str]) -> list[ast.FunctionDef]:
    """The functions called from ``roots``, those included, in the order of the text. Names tell; classes do not."""
    known = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    waiting, found = [name for name in roots if name in known], set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        for node in ast.walk(known[name]):
            called = _called(node) if isinstance(node, ast.Call) else ""
            if called in known and called not in found and not _is_property(known[called]):
                waiting.append(called)
    return sorted((known[name] for name in found), key=lambda function: function.lineno)


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list)


def _guards(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Conditions of branches, choices, filters, loops, and what is required."""
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.While):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.Call) and _called(node) == "require":
            yield from node.args[:1]


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _without(text: Text, call: ast.Call, keyword: ast.keyword) -> Change:
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    others = [text.of(one) for one in given if one is not keyword]
    start, end = text.span(call.func)[1], text.span(call)[1]
    return Change(
        start, end, b"(" + b", ".join(others) + b")", f"dropped: {keyword.arg} = {_said(text, keyword.value)}"
    )


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _said(text: Text, node: ast.expr | ast.stmt) -> str:
    return b" ".join(text.of(node).split()).decode("utf-8", "replace")[:70]


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
            f"specification {name}: it breaks {', '.join(broken)} as it is; fix it first (orderlab explore)"
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
