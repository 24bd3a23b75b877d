"""Random symmetric specifications as program text, and a plain search of them that shares nothing with the explorer.

The plain search runs the methods of the text on ordinary objects with lists, keeps states in a dictionary, and decides
each law from what the notes say of it: reachability by going through all states, liveness by taking apart components.
"""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import networkx as nx

from orderlab.model.spec import declarative
from orderlab.model.spec.declarations import GuardNotMet
from orderlab.model.spec.declarative import Specification
from orderlab.model.spec.variables import Array

HEAD = """\
from functools import cached_property
from typing import ClassVar

from orderlab.specification import *


class Drawn(Specification):
    name: ClassVar[str] = "drawn"
    n: int = 2

    @cached_property
    def members(self):
        return IndexSet("member", self.n, symmetric=True)

    @cached_property
    def message(self):
        return record(kind=integer(0, 1), to=element(self.members, optional=True))

"""
COMPOUNDS = {
    "w": "set_of(element(self.members))", "msgs": "set_of(self.message)", "q": "sequence_of(element(self.members), 2)",
    "head": "self.message", "box": "Array(self.members, set_of(integer(1, 2)))",
    "log": "sequence_of(self.message, 1)",
}  # fmt: skip
"""Variables that hold sets, sequences and records. In each a member may be named."""
STATES_AT_MOST = 400

Key = tuple[Any, ...]


class Author:
    """Writes one specification. Members are compared for equality and quantified over only, so they are symmetric."""

    def __init__(self, seed: int):
        self.rng = Random(f"plain search {seed}")
        self.has_token = self.chance(0.5)
        self.names = ["x", "y"]
        self.compounds = self.rng.sample(list(COMPOUNDS), self.rng.randint(1, 2)) if self.chance(0.5) else []

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def atom(self, s: str, i: str | None) -> str:
        value = self.rng.randint(0, 2)
        found = [
            f"{s}.{self.rng.choice(self.names)} {self.rng.choice(['==', '!=', '<='])} {value}",
            f"any({s}.a[k] == {value} for k in self.members)",
            f"all({s}.a[k] != {value} for k in self.members)",
            f"sum({s}.a[k] == {value} for k in self.members) <= {self.rng.randint(0, 1)}",
        ]
        if self.has_token:
            found.append(f"{s}.t == NOBODY")
        if i is not None:
            found += [f"{s}.a[{i}] == {value}"] * 3 + ([f"{s}.t == {i}"] if self.has_token else [])
        for name in self.compounds:
            found += self.looked_at(name, s, i, self.rng.randint(0, 1)) * 2
        return self.rng.choice(found)

    def looked_at(self, name: str, s: str, i: str | None, v: int) -> list[str]:
        """Atoms about a set, a sequence or a record."""
        v1, here = v + 1, f"{s}.{name}"
        alone = {
            "w": [f"len({here}) == {v1}", f"any({s}.a[k] == {v} for k in {here})", f"{here} == set()", f"not {here}"],
            "msgs": [
                f"any(m.kind == {v} for m in {here})",
                f"len({here}) <= {v1}",
                f"self.message({v}, NOBODY) in {here}",
            ],
            "q": [
                f"len({here}) == {v1}",
                f"{here} == ()",
                f"all({s}.a[k] <= {v} for k in {here})",
                f"{here}[1:] != {here}[:-1]",
            ],
            "head": [f"{here}.kind == {v}", f"{here}.to == NOBODY", f"{here} != self.message({v}, NOBODY)"],
            "box": [
                f"any({v1} in {here}[k] for k in self.members)",
                f"sum(len({here}[k]) for k in self.members) > {v1}",
            ],
            "log": [f"len({here}) == {v}", f"any(m.kind == {v} and m.to != NOBODY for m in {here})"],
        }[name]
        of_one = {
            "w": [f"{i} in {here}", f"{here} <= {{{i}}}", f"{here} & {{{i}}} != set()"],
            "msgs": [f"self.message(kind={v}, to={i}) in {here}", f"any(m.to == {i} for m in {here})"],
            "q": [f"{i} not in {here}", f"(len({here}) > 0 and {here}[{-v}] == {i})"],
            "head": [f"{here}.to == {i}"],
            "box": [f"{v1} in {here}[{i}]", f"{here}[{i}] >= {{{v1}}}", f"not {here}[{i}]"],
            "log": [f"self.message(to={i}, kind={v}) in {here}"],
        }[name]
        return alone if i is None else alone + of_one

    def changed(self, name: str, i: str | None, j: str | None, v: int) -> list[str]:
        """Assignments of a set, a sequence or a record."""
        here, v1 = f"s.{name}", v + 1
        alone = {
            "w": [f"{here} = set()", f"s.x = sum(s.a[k] for k in {here}) % 3", f"s.y = len({here}) % 3"],
            "msgs": [
                f"{here} |= {{self.message({v}, NOBODY)}}",
                f"{here} = frozenset()",
                f"s.x = min(2, sum(m.kind for m in {here}))",
            ],
            "q": [f"{here} = {here}[1:]", f"{here} = {here}[:-1]", f"s.y = len({here})"],
            "head": [f"{here} = {here}.replace(kind={v})", f"{here} = self.message((s.x + {v}) % 2, {here}.to)"],
            "box": [f"s.x = min(2, sum(len({here}[k]) for k in self.members))"],
            "log": [f"{here} = (self.message({v}, NOBODY),)", f"{here} = {here}[1:]"],
        }[name]
        of_one = {
            "w": [
                f"{here} |= {{{i}}}",
                f"{here} -= {{{i}}}",
                f"{here} ^= {{{i}}}",
                f"{here} = {here} & {{{i}}}",
                f"{here} = {{{i}}}",
            ],
            "msgs": [f"{here} |= {{self.message(kind={v}, to={i})}}", f"{here} -= {{self.message({v}, {i})}}"],
            "q": [f"{here} = {here} + ({i},) if len({here}) < 2 else {here}[1:]", f"{here} = ({i},)"],
            "head": [f"{here} = self.message(kind={v}, to={i})", f"{here} = {here}.replace(to={i})"],
            "box": [
                f"{here}[{i}] |= {{{v1}}}",
                f"{here}[{i}] = {here}[{i}] - {{{v1}}}",
                f"{here}[{i}] = {here}[{j or i}]",
            ],
            "log": [f"{here} = (self.message({v}, {i}),)"],
        }[name]
        return alone if i is None else alone[:1] + of_one

    def truth(self, s: str = "s", i: str | None = None) -> str:
        one = self.atom(s, i)
        if self.chance(0.5):
            one = f"{one} {self.rng.choice(['and', 'or'])} {self.atom(s, i)}"
        return f"not ({one})" if self.chance(0.2) else one

    def assignment(self, i: str | None, other: str | None) -> str:
        value = self.rng.randint(0, 2)
        name = self.rng.choice(self.names)
        found = [f"s.{name} = {value}", f"s.{name} = (s.{name} + 1) % 3"]
        if i is not None:
            found += [f"s.a[{i}] = {value}", f"s.a[{i}] = (s.a[{i}] + 1) % 3", f"s.a[{i}] = {value}"]
            found += [f"s.t = {i}", "s.t = NOBODY"] if self.has_token else []
        if other is not None:
            found += [f"s.a[{other}] = s.a[{i}]", f"s.a[{other}] = {value}"]
        for name in self.compounds:
            found += self.changed(name, i, other, self.rng.randint(0, 1)) * 2
        return self.rng.choice(found)

    def action(self, number: int) -> list[str]:
        kind = self.rng.choice(["alone", "alone", "member", "member", "member", "pair"])
        i, j = ("i" if kind != "alone" else None), ("j" if kind == "pair" else None)
        sets = "".join(f', {name}="members"' for name in (i, j) if name)
        fair = self.rng.choice(["", "", ", fair=True", ', fair="strong"'])
        actor = "member {i}" if i else f"lone {self.rng.randint(0, 1)}"
        lines = [
            f'@action(actor="{actor}"{fair}{sets})',
            f"def act{number}(self, s{''.join(', ' + n for n in (i, j) if n)}):",
        ]
        lines += ["    require(i != j)"] if j else []
        lines += [f"    require({self.truth(i=i)})"] if self.chance(0.85) else []
        lines += [f"    {self.assignment(i, j)}" for _ in range(self.rng.randint(1, 2))]
        return lines

    def law(self, number: int) -> list[str]:
        kind = self.rng.choice(
            ["invariant"] * 3 + ["step_invariant", "sometimes", "sometimes", "leads_to", "leads_to", "eventually"]
        )
        i = "i" if self.chance(0.4) else None
        rest, ranges = (", i", 'i="members"') if i else ("", "")
        if kind in ("leads_to", "eventually"):
            lines = [f"def when{number}(self, s{rest}):", f"    return {self.truth(i=i)}"] if kind == "leads_to" else []
            lines += [f"def then{number}(self, s{rest}):", f"    return {self.truth(i=i)}"]
            given = f'"when{number}", "then{number}"' if kind == "leads_to" else f'"then{number}"'
            return [*lines, f"live{number}: ClassVar = {kind}({given}{', ' + ranges if ranges else ''})"]
        if kind == "step_invariant":
            said = f"not ({self.truth('s', i)}) or {self.truth('t', i)}"
            return [f"@step_invariant({ranges})", f"def law{number}(self, s, t{rest}):", f"    return {said}"]
        lines, given = [], [ranges] if ranges else []
        if kind == "invariant" and self.chance(0.4):
            lines = [f"def when{number}(self, s{rest}):", f"    return {self.truth(i=i)}"]
            given.insert(0, f'when="when{number}"')
        return [
            *lines,
            f"@{kind}({', '.join(given)})",
            f"def law{number}(self, s{rest}):",
            f"    return {self.truth(i=i)}",
        ]

    def walker(self, number: int, own: str, place: int) -> list[str]:
        """A step of a process that mostly works for itself: something to reduce, and something to miss."""
        lines = [f'@action(actor="walker {own}")', f"def act{number}(self, s):", f"    require(s.{own} == {place})"]
        if self.chance(0.3):
            lines.append(f"    require(s.{self.rng.choice('xyz')} == {self.rng.randint(0, 1)})")
        if self.chance(0.5):
            lines.append(f"    s.{self.rng.choice('xyz')} = {self.rng.randint(0, 2)}")
        return [*lines, f"    s.{own} = {place + 1 if self.chance(0.85) else 0}"]

    def write_walkers(self) -> str:
        names = "pqr"[: self.rng.randint(2, 3)]
        out = ["def variables(self):"]
        out += [f"    return {{name: integer(0, 4) for name in 'xyz{names}'}}"]
        number = 0
        for own in names:
            for place in range(self.rng.randint(1, 3)):
                out += self.walker(number, own, place)
                number += 1
        out += self.plain_laws("xyz", members=False)
        return HEAD + "\n".join("    " + line for line in out) + "\n"

    def write_members(self) -> str:
        """Members that each go their own way, alike: something to reduce under symmetry."""
        compound = self.chance(0.4)
        out = [f"n: int = {self.rng.choice([2, 3, 3])}", "def variables(self):"]
        more = ', "box": Array(self.members, set_of(integer(1, 2)))' if compound else ""
        self.compounds = ["box"] if compound else []
        out += [
            f'    return {{"x": integer(0, 2), "y": integer(0, 2), "z": integer(0, 2), "a": Array(self.members, '
            f"integer(0, 2)){more}}}"
        ]
        for number in range(self.rng.randint(2, 3)):
            out += [
                '@action(actor="member {i}", i="members")',
                f"def act{number}(self, s, i):",
                f"    require(s.a[i] == {number})",
            ]
            out += [f"    require(s.{self.rng.choice('xyz')} == {self.rng.randint(0, 1)})"] if self.chance(0.3) else []
            out += [f"    require({self.rng.randint(1, 2)} in s.box[i])"] if compound and self.chance(0.2) else []
            out += [f"    s.{self.rng.choice('xyz')} = {self.rng.randint(0, 2)}"] if self.chance(0.4) else []
            out += [f"    s.box[i] |= {{{self.rng.randint(1, 2)}}}"] if compound and self.chance(0.7) else []
            out += [f"    s.a[i] = {(number + 1) % 3 if self.chance(0.85) else 0}"]
        if self.chance(0.3):
            out += ['@action(actor="lone")', "def tick(self, s):", f"    require(s.z == {self.rng.randint(0, 1)})"]
            out += [f"    s.{self.rng.choice('yz')} = {self.rng.randint(0, 2)}"]
        out += self.plain_laws("xyz")
        return HEAD + "\n".join("    " + line for line in out) + "\n"

    def plain_laws(self, names: str, members: bool = True) -> list[str]:
        """Laws that look at little, and now and then at a member."""
        out = []
        for law in range(self.rng.randint(2, 3)):
            name, value = self.rng.choice(names), self.rng.randint(0, 2)
            said = f"s.{name} != {value}" if self.chance(0.6) else f"s.{name} == {value}"
            said = f"{said} or any(s.a[k] == 2 for k in self.members)" if members and self.chance(0.1) else said
            out += [
                self.rng.choice(["@invariant()", "@invariant()", "@sometimes()"]),
                f"def law{law}(self, s):",
                f"    return {said}",
            ]
        return out + (["def terminal(self, s):", "    return True"] if self.chance(0.5) else [])

    def write(self) -> str:
        if self.chance(0.4):
            return self.write_walkers() if self.chance(0.5) else self.write_members()
        token = ', "t": element(self.members, optional=True)' if self.has_token else ""
        out = [f"n: int = {self.rng.choice([2, 2, 3])}"]
        out += ["def variables(self):"]
        more = "".join(f', "{name}": {COMPOUNDS[name]}' for name in self.compounds)
        out += [
            f'    return {{"x": integer(0, 2), "y": integer(0, 2), "a": Array(self.members, integer(0, '
            f"2)){token}{more}}}"
        ]
        out += [
            "def starts_anywhere(self):",
            f"    return {self.rng.choice(['()', '()', '()', repr(('x',)), repr(('a',))])}",
        ]
        for number in range(self.rng.randint(2, 5)):
            out += self.action(number)
        for number in range(self.rng.randint(1, 4)):
            out += self.law(number)
        if self.chance(0.2):
            out += ["@constraint()", "def near(self, s):", f"    return {self.truth()}"]
        if self.chance(0.5):
            out += ["def terminal(self, s):", f"    return {self.rng.choice([self.truth(), 'True'])}"]
        if self.chance(0.15):
            out += [f"together: ClassVar = {self.rng.choice(['weak', 'strong'])}_fairness('act0', 'act1')"]
        return HEAD + "\n".join("    " + line for line in out) + "\n"


def specification(seed: int) -> Specification:
    """The specification that the seed draws; `inspect` finds its text."""
    text, file = Author(seed).write(), f"<plain_{seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(f"plain_{seed}")
    exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    made: Specification = module.Drawn()
    return made


@dataclass
class Found:
    """What the plain search says. `outcomes` has vacuous laws as "vacuous"; `depths` of the shortest violation or
    goal."""

    states: dict[Key, int] = field(default_factory=dict)
    cut: set[Key] = field(default_factory=set)
    steps: dict[Key, list[tuple[str, tuple[int, ...], Key]]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=dict)


class TooLarge(Exception):
    """More states than a comparison is worth."""


ARRAYS = ("a", "box")


def plain(value: Any) -> Any:
    """A value of a variable as a key has it."""
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, set | frozenset):
        return frozenset(value)
    return value if isinstance(value, tuple) else int(value)


def renamed(name: str, value: Any, names: Sequence[int]) -> Any:
    """A value of a variable with its members renamed."""
    new = (*names, -1)  # of NOBODY, too
    if name in ARRAYS:
        return tuple(value[names.index(member)] for member in range(len(names)))
    message = lambda one: (one[0], new[one[1]])  # noqa: E731
    how: dict[str, Callable[[Any], Any]] = {
        "t": lambda v: new[v],
        "w": lambda v: frozenset(new[one] for one in v),
        "msgs": lambda v: frozenset(map(message, v)),
        "q": lambda v: tuple(new[one] for one in v) if isinstance(v, tuple) else v,
        "head": message,
        "log": lambda v: tuple(map(message, v)),
    }
    return how[name](value) if name in how else value


class PlainSearch:
    """One specification, its methods called on ordinary objects."""

    def __init__(self, made: Specification):
        self.made = made
        self.names = list(made.variables())
        self.found = Found()
        self._search()
        self._judge()

    # -- states ----------------------------------------------------------------------------------------------------

    def key(self, s: SimpleNamespace) -> Key:
        return tuple(plain(getattr(s, name)) for name in self.names)

    def object(self, key: Key) -> SimpleNamespace:
        values = zip(self.names, key, strict=True)
        return SimpleNamespace(**{n: list(v) if n in ARRAYS else v for n, v in values})

    def described(self, key: Key) -> dict[str, Any]:
        """The state as the explorer's witnesses have it."""
        schema = self.made.schema_of_state
        codes = [
            tuple(kind.of.code(one, name) for one in value) if isinstance(kind, Array) else kind.code(value, name)
            for name, kind, value in zip(self.names, schema.kinds, key, strict=True)
        ]
        return schema.describe(tuple(codes))

    def orbits(self, keys: Iterable[Key]) -> int:
        """How many states there are up to renaming of members, by trying all renamings."""
        n = self.made.n  # type: ignore[attr-defined]
        left, found = set(keys), 0
        while left:
            key = next(iter(left))
            left -= {tuple(map(renamed, self.names, key, [names] * len(key))) for names in permutations(range(n))}
            found += 1
        return found

    def declared(self, kind: type[Any]) -> list[Any]:
        return [value for value in vars(type(self.made)).values() if isinstance(value, kind)]

    def bindings(self, one: Any) -> list[tuple[int, ...]]:
        return list(product(range(self.made.n), repeat=len(one.ranges)))  # type: ignore[attr-defined]

    def initial(self) -> list[Key]:
        free = self.made.starts_anywhere()
        n = self.made.n  # type: ignore[attr-defined]
        found = []
        for x, *a in product(range(3), repeat=1 + n):
            start = {
                "x": x if "x" in free else 0,
                **dict.fromkeys("yzpqr", 0),
                "a": a if "a" in free else [0] * n,
                "t": -1,
            }
            empty = {"w": frozenset(), "msgs": frozenset(), "head": (0, -1), "box": [frozenset()] * n, "log": ()}
            empty |= {"q": ()} if "a" in self.names else {}
            if "head" in self.names:
                empty["head"] = self.made.message(0, -1)  # type: ignore[attr-defined]
            found.append(self.key(SimpleNamespace(**(start | empty))))
        return list(dict.fromkeys(found))

    def offered(self, key: Key) -> list[tuple[str, tuple[int, ...], Key]]:
        steps = []
        for one in self.declared(declarative.Action):
            for binding in self.bindings(one):
                s = self.object(key)
                try:
                    one.method(self.made, s, *binding)
                except GuardNotMet:
                    continue
                steps.append((one.name, binding, self.key(s)))
        return steps

    def says(self, predicate: Callable[..., Any] | str, key: Key, *given: Any) -> bool:
        method = getattr(type(self.made), predicate) if isinstance(predicate, str) else predicate
        return bool(method(self.made, self.object(key), *given))

    def _search(self) -> None:
        found = self.found
        bounds = self.declared(declarative.ConstraintDeclaration)
        found.fired = {one.name: 0 for one in self.declared(declarative.Action)}
        waiting = deque(self.initial())
        found.states = dict.fromkeys(waiting, 0)
        while waiting:
            key = waiting.popleft()
            found.steps[key] = []
            if not all(self.says(one.method, key) for one in bounds):
                found.cut.add(key)
                continue
            found.steps[key] = self.offered(key)
            for name, _, after in found.steps[key]:
                found.fired[name] += 1
                if after not in found.states:
                    found.states[after] = found.states[key] + 1
                    waiting.append(after)
                    if len(found.states) > STATES_AT_MOST:
                        raise TooLarge

    # -- laws ------------------------------------------------------------------------------------------------------

    def breaks(self, one: Any, key: Key) -> bool:
        """Whether a state breaks an invariant."""
        return any(
            (one.when is None or self.says(one.when, key, *given)) and not self.says(one.method, key, *given)
            for given in self.bindings(one)
        )

    def step_breaks(self, one: Any, before: Key, after: Key) -> bool:
        return any(not self.says(one.method, before, self.object(after), *given) for given in self.bindings(one))

    def is_stuck(self, key: Key) -> bool:
        return key not in self.found.cut and not self.found.steps[key] and not self.says("terminal", key)

    def _note(self, law: str, states: Sequence[Key], otherwise: str) -> None:
        self.found.outcomes[law] = "violated" if states else otherwise
        if states:
            self.found.depths[law] = min(self.found.states[key] for key in states)

    def _judge(self) -> None:
        found, law = self.found, declarative.law_name
        for one in self.declared(declarative.InvariantDeclaration):
            otherwise = "holds"
            if one.when is not None:
                met = sum(any(self.says(one.when, key, *b) for b in self.bindings(one)) for key in found.states)
                found.met[law(one.name)] = met
                otherwise = "holds" if met else "vacuous"
            self._note(law(one.name), [key for key in found.states if self.breaks(one, key)], otherwise)
        for one in self.declared(declarative.StepInvariantDeclaration):
            broken = [key for key, steps in found.steps.items() if any(self.step_breaks(one, key, s[2]) for s in steps)]
            self._note(law(one.name), broken, "holds" if any(found.steps.values()) else "vacuous")
        self._note("no-deadlock", [key for key in found.states if self.is_stuck(key)], "holds")
        for one in self.declared(declarative.SometimesDeclaration):
            reached = [key for key in found.states if any(self.says(one.method, key, *b) for b in self.bindings(one))]
            found.outcomes[law(one.name)] = "holds" if reached else "unknown" if found.cut else "violated"
            if reached:
                found.depths[law(one.name)] = min(found.states[key] for key in reached)
        for one in self.declared(declarative.LeadsToDeclaration):
            for given in self.bindings(one):
                self._live(declarative.bound_name(one, given), one, given)
        silent = not all(found.fired.values()) or not all(found.met.values())
        found.outcomes["coverage"] = "vacuous" if silent else "holds"

    def conditions(self) -> Iterator[tuple[bool, Callable[[tuple[str, tuple[int, ...], Key]], bool]]]:
        """Fairness: whether strong, and which steps."""
        for one in self.declared(declarative.Action):
            if one.fair:
                for given in self.bindings(one):
                    yield one.fair == "strong", lambda step, n=one.name, g=given: step[:2] == (n, g)  # type: ignore[misc]
        for group in self.declared(declarative.FairnessDeclaration):
            yield group.strong, lambda step, names=group.actions: step[0] in names  # type: ignore[misc]

    def _live(self, name: str, one: Any, given: tuple[int, ...]) -> None:
        found = self.found
        starts = set(self.initial())
        begins = {k for k in found.states if (k in starts if one.when is None else self.says(one.when, k, *given))}
        region = {k for k in found.states if k not in found.cut and not self.says(one.then, k, *given)}
        graph = nx.DiGraph()
        graph.add_nodes_from(region)
        graph.add_edges_from((k, s[2]) for k in region for s in found.steps[k] if s[2] in region and s[2] != k)
        stays = set(begins & region)
        for key in begins & region:
            stays |= nx.descendants(graph, key)
        found.met[name] = len(begins)
        if self.can_stay(graph, stays):
            found.outcomes[name] = "violated"
        else:
            found.outcomes[name] = "vacuous" if not begins else "unknown" if found.cut else "holds"

    def enabled(self, condition: Callable[[Any], bool], key: Key) -> bool:
        return any(condition(step) and step[2] != key for step in self.found.steps[key])

    def can_stay(self, graph: nx.DiGraph, among: set[Key]) -> bool:
        """Whether some fair behaviour stays among these states for ever."""
        for part in nx.strongly_connected_components(graph.subgraph(among)):
            neglected: set[Key] = set()
            fair = True
            for strong, condition in self.conditions():
                offering = {key for key in part if self.enabled(condition, key)}
                taken = any(condition(s) and s[2] in part and s[2] != k for k in offering for s in self.found.steps[k])
                if not taken and (offering if strong else offering == part):
                    fair = False
                    neglected |= offering if strong else part
            if fair or (len(neglected) < len(part) and self.can_stay(graph, part - neglected)):
                return True
        return False
