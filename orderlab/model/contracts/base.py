"""The contract: what a kind of store promises, as a sequential specification that may leave choices open.

A contract is a class: an initial state, what each operation may reply and leave behind, what time alone does, laws that
name what a wrong reply breaks, and the calls that are worth trying. Everything else (interleavings, errors, crashes,
lost replies, expiry, shrinking, stories) follows from it and is generic.

    class Counter(Contract):
        operations = {"increment": ()}

        def initial(self):
            return 0

        def outcomes(self, state, call, now_ms):
            yield state + 1, state + 1

        def calls(self, client, seen):
            yield Call.of("increment")

        @law("counter", "the counter advances by one")
        def advances(self, before, call, reply, now_ms):
            return reply == before + 1

The judge keeps the set of abstract states that explain all replies so far, as linearizability testers do (Wing and
Gong 1993; Lowe 2017). An operation that was stopped adds "as before" and "as after", never a third.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

from orderlab.model.errors import InputError

State = Hashable
Reply = Any
"""A plain value: None, an integer, text, or a tuple of such; what the binding made of the store's reply."""

SPECIFICATION = "specification"
"""The law that a reply breaks which the specification does not allow and no law of the contract names."""
ALL_OR_NOTHING = "all-or-nothing"
DURATIONS_MS = (1, 400 * 24 * 3600 * 1000)
"""Milliseconds that callers may give, where any duration will do."""
TEXT_BYTES = (0, 1 << 20)
"""Bytes of a text that a store keeps and looks at nowhere."""
CANDIDATES_MAX = 4096
"""More abstract states than this at once, and the contract leaves too much open to be judged."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call on a store: the operation's name and its fields."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str, /, **fields: Any) -> Call:
        """The call ``name(**fields)``."""
        return cls(name, tuple(fields.items()))

    def __getitem__(self, field: str) -> Any:
        """The value of a field. Raises KeyError."""
        for name, value in self.fields:
            if name == field:
                return value
        raise KeyError(field)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={brief(value)}' for name, value in self.fields)})"


ITEMS_SHOWN = 12


def brief(value: Any) -> str:
    """A value as reports show it: of a long tuple the first items, the last one, and how many there are between."""
    if isinstance(value, tuple) and type(value).__repr__ is tuple.__repr__ and len(value) > ITEMS_SHOWN:
        first = ", ".join(map(brief, value[: ITEMS_SHOWN // 4]))
        return f"({first}, ... {len(value) - ITEMS_SHOWN // 4 - 1:,} more ..., {brief(value[-1])})"
    return repr(value)


class Exchange(NamedTuple):
    """A call and the reply that its client got."""

    call: Call
    reply: Reply


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A reply that the specification leaves open: whatever ``accepts`` takes.

    ``example`` stands for the reply of an operation that was stopped, which nobody heard, so it must be the weakest:
    every later reply that some accepted value allows must be allowed after ``example`` too. Where a later reply shows
    the value itself, list the values that matter as outcomes of their own.
    """

    accepts: Callable[[Reply], bool]
    example: Reply
    words: str = "any of several"

    def __str__(self) -> str:
        return self.words


def above(floor: int) -> AnyOf:
    """Any integer greater than ``floor``."""
    return AnyOf(lambda reply: type(reply) is int and reply > floor, floor + 1, f"an integer above {floor}")


class Failed(NamedTuple):
    """An error reply, or one that the binding cannot read. No state explains it unless the contract offers it."""

    text: str

    def __str__(self) -> str:
        return f"the error {self.text!r}"


class Opening(NamedTuple):
    """A situation to explore from, besides the empty store."""

    name: str
    steps: tuple[tuple[int, str, Mapping[str, Any]] | int, ...]
    """Milliseconds that pass, or (client, operation, fields): the first of the client's ``calls`` that has these
    fields."""


class Crowd(NamedTuple):
    """A situation with many things in a store, for what shows at length alone."""

    name: str
    sizes: tuple[int, int]
    steps: Callable[[int], Iterable[tuple[int, Call] | int]]
    """From how many to what is done: (client, call), or milliseconds that pass."""
    is_asked: bool = False
    """A client asks for so many in one call, and the Redis calls may grow with what it asks for."""
    clients: int = 2
    """How many clients' calls are tried in it."""


_SERIAL = re.compile(r"[0-9]+$")
_NAME = re.compile(r"([a-z])[0-9]+(?:_([0-9]+))?(?:\.[0-9]+)?")


Bound = Iterable[str] | Mapping[str, Collection[str] | None]
"""The operations that a store has; with the fields that each of them passes on to the store, where that is known."""


Clocks = Literal["any", "agree"]
"""A promise: whether the clocks of clients may differ from the server's; "agree": the store assumes that they do
not."""


def passes(bound: Bound, operation: str, field: str) -> bool:
    """Whether a store is told ``field``: where it is not, callers have no choice in it."""
    passed = bound.get(operation) if isinstance(bound, Mapping) else None
    return passed is None or field in passed


def tells(bound: Bound | None, operation: str, field: str) -> bool:
    """Whether a store is known to be told ``field``, which most are not."""
    passed = bound.get(operation) if isinstance(bound, Mapping) else None
    return passed is not None and field in passed


def fresh_name(number: int, client: int) -> str:
    """The name of the ``number``-th thing that a client makes. Later ones come first in the order of bytes, so that
    this is not taken for the order in which they were made; none comes twice."""
    again = f"_{number // 26}" if number >= 26 else ""
    return f"{chr(ord('z') - number % 26)}{client}{again}"


def next_number(made: Sequence[Sequence[str]]) -> int:
    """The number of the next thing, by the names of those that each call of a client made: by the last that is
    remembered, for of a long run not all are."""
    found = _NAME.fullmatch(made[-1][0]) if made and made[-1] else None
    if found is None:
        return sum(map(len, made))
    return 26 * int(found[2] or 0) + ord("z") - ord(found[1]) + len(made[-1])


def next_serial(count: int, made: Sequence[str]) -> int:
    """The number of the next thing that a client names ``….NUMBER``, of which it made these, the last last: ``count``,
    or more where of a long run not all is remembered."""
    last = _SERIAL.search(made[-1]) if made else None
    return count if last is None else max(count, int(last[0]) + 1)


Outcome = tuple[Reply, Any]
"""A reply, or AnyOf, and the state that goes with it: a state, or a function from the reply to one."""
LawCheck = Callable[[Any, Any, Call, Reply, int], "bool | None"]


@dataclass(frozen=True)
class ContractLaw:
    """A law by which a single reply can be wrong."""

    name: str
    statement: str
    check: LawCheck
    """``check(contract, before, call, reply, now_ms)``: None when the reply does not test the law."""
    needs: tuple[str, ...] = ()
    """Operations of which a store must have one."""


def law(name: str, statement: str, needs: Sequence[str] = ()) -> Callable[[LawCheck], LawCheck]:
    """Mark a method ``(self, before, call, reply, now_ms) -> bool | None`` as the law ``name``. Of a store that has
    none of the operations ``needs`` it says nothing."""

    def mark(check: LawCheck) -> LawCheck:
        check.law = (name, statement, tuple(needs))  # type: ignore[attr-defined]
        return check

    return mark


def _calls_among(contract: Contract, names: frozenset[str], client: int, seen: Sequence[Exchange]) -> list[Call]:
    return [call for call in contract.calls(client, seen) if call.name in names]


def _crowds_among(contract: Contract, names: frozenset[str]) -> list[Crowd]:
    def is_possible(one: Crowd) -> bool:
        return all(isinstance(step, int) or step[1].name in names for size in one.sizes for step in one.steps(size))

    return [one for one in contract.crowds() if is_possible(one)]


class Contract:
    """Base class of a kind of store. See the module's text; ``lua/lock`` and ``lua/limiter`` are worked examples."""

    operations: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Operation -> the names of its fields, as templates of ``store.toml`` use them."""
    optional: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Of these, what a store may leave out and chooses by itself then, and a call as well. Any other that no template
    passes is told as a gap."""
    clients: ClassVar[int] = 2
    """Clients of the exhaustive scopes."""
    steps_per_client: ClassVar[int] = 3
    """Operations of each client in the exhaustive scopes."""

    @property
    def clocks_agree(self) -> bool:
        """Whether a store may assume that its clients' clocks are the server's; no client's is ahead then. As
        ``promises.clocks`` says, where the contract has such a promise."""
        return getattr(getattr(self, "promises", None), "clocks", "any") == "agree"

    def initial(self) -> State:
        """The state of an empty store."""
        raise NotImplementedError

    def outcomes(self, state: Any, call: Call, now_ms: int) -> Iterable[Outcome]:
        """All that is allowed: each reply with the state that goes with it."""
        raise NotImplementedError

    def may_wait(self, state: Any, call: Call, now_ms: int) -> bool:
        """Whether ``call`` may go on waiting for this state to change, by a blocking command without a timeout, while
        nobody does anything."""
        return True

    def may_repeat(self, call: Call) -> bool:
        """Whether a client that has not heard how ``call`` ended may send it once more."""
        return True

    def elapse(self, state: Any, now_ms: int) -> Any:
        """The state at ``now_ms`` if nothing but time has happened. Must be idempotent."""
        return state

    def deadlines_ms(self, state: Any) -> Iterable[int]:
        """Moments at which time alone changes something; those before and after each are visited."""
        return ()

    def size(self, state: Any) -> int:
        """How much a store may hold in this state, in a unit of your own. As it is: how many values the state is made
        of. A store that goes on growing while this does not breaks ``no-residue``."""
        return size_of(state)

    def needs_nothing(self, state: Any) -> bool:
        """Whether a store in this state need keep nothing for ever: it is made for many things with keys of their own,
        and all that happened to this one is over. A key without a deadline that stays then breaks ``no-residue``."""
        return False

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        """The calls that are worth trying by a client that has seen ``seen``, the plainest first."""
        raise NotImplementedError

    def openings(self) -> Sequence[Opening]:
        """Situations that are a few steps away, to explore from as well."""
        return ()

    def among(self, names: Collection[str]) -> Self:
        """The same contract, of which clients use these operations alone."""
        made = copy.copy(self)
        for method, limited in (("calls", _calls_among), ("crowds", _crowds_among)):
            # An author's class may be frozen.
            object.__setattr__(made, method, partial(limited, self, frozenset(names)))
        return made

    def crowds(self) -> Sequence[Crowd]:
        """Situations with many things, in which every call worth trying is tried once."""
        return ()

    def ranges(self) -> Mapping[str, tuple[int, int]]:
        """What callers may give beyond ``calls``: field, or ``operation.field`` -> the least and the greatest number;
        of a text how few and how many bytes. ``outcomes`` must be right for all of them. Boundaries of scripts are met
        within these ranges alone."""
        return {}

    @property
    def laws(self) -> tuple[ContractLaw, ...]:
        """The laws of the class, in the order in which they are written."""
        found: dict[str, ContractLaw] = {}
        for kind in reversed(type(self).__mro__):
            for member in vars(kind).values():
                if hasattr(member, "law"):
                    name, statement, needs = member.law
                    if name in found and found[name].check.__name__ != member.__name__:
                        raise InputError(
                            f'{kind.__name__}.{member.__name__}: there is a law "{name}" already; name it otherwise'
                        )
                    found[name] = ContractLaw(name, statement, member, needs)
        return tuple(found.values())


def size_of(state: Any) -> int:
    """How many plain values a state is made of."""
    if is_dataclass(state) and not isinstance(state, type):
        return sum(size_of(getattr(state, one.name)) for one in fields(state))
    if isinstance(state, Mapping):
        return sum(size_of(key) + size_of(value) for key, value in state.items())
    return sum(map(size_of, state)) if isinstance(state, tuple | frozenset) else 1


def shown(state: Any) -> str:
    """A state as reports show it: as repr does, but sets in the order of what they show, the same in every process, and
    without the fields of records that are as they are by default."""
    if isinstance(state, set | frozenset) and state:
        inside = "{" + ", ".join(sorted(map(shown, state))) + "}"
        return inside if type(state) is set else f"{type(state).__name__}({inside})"
    # Not one of its own.
    if is_dataclass(state) and not isinstance(state, type) and hasattr(type(state).__repr__, "__wrapped__"):
        given = [(one.name, getattr(state, one.name), one.default) for one in fields(state) if one.repr]
        return f"{type(state).__qualname__}({_told(given)})"
    if isinstance(state, tuple) and hasattr(state, "_fields") and type(state).__repr__.__module__ == "collections":
        defaults: Mapping[str, Any] = type(state)._field_defaults  # type: ignore[attr-defined]
        members = [(name, getattr(state, name), defaults.get(name, MISSING)) for name in state._fields]
        return f"{type(state).__name__}({_told(members)})"
    if type(state) is tuple:
        return f"({', '.join(map(shown, state))}{',' if len(state) == 1 else ''})"
    return repr(state)


def _told(given: Iterable[tuple[str, Any, Any]]) -> str:
    """Of name, value, default."""
    return ", ".join(
        f"{name}={shown(value)}"
        for name, value, default in given
        if type(value) is not type(default) or value != default
    )


class Situation(NamedTuple):
    """What must have happened for a law to mean something, and the operations without which it cannot happen."""

    name: str
    needs: tuple[str, ...] = ()


class Discrepancy(NamedTuple):
    """One law broken by one step."""

    law: str
    text: str
    diverges: bool = True
    """Whether the store has left the abstract state for good, so that nothing after this step can be judged."""


class AnyTrace(Protocol):
    """Steps that reproduce a behaviour, with what is needed to take them again."""

    @property
    def steps(self) -> Sequence[Any]: ...

    @property
    def store(self) -> str: ...

    @property
    def law(self) -> str: ...

    @property
    def seed(self) -> int | None: ...

    @property
    def world(self) -> int:
        """Which of a store's worlds the steps are of, if it is tried in smaller ones too: traces of one are compared by
        length."""
        ...

    def to_json(self) -> dict[str, Any]: ...


class Terms(Protocol):
    """What a kind of store says of itself without any store: its laws, what tests them, its steps in JSON
    and in words, what is explored in small scopes. ``orderlab.properties.contracts.kind.Kind`` adds what takes a store
    to try."""

    @property
    def name(self) -> str: ...

    @property
    def laws(self) -> Mapping[str, str]:
        """Law -> statement."""
        ...

    @property
    def situations(self) -> Mapping[str, Sequence[Situation]]:
        """Law -> what must come about before it has been tested; none for a law that counts its tests
        itself."""
        ...

    @property
    def scopes(self) -> Sequence[Any]:
        """What is explored, the most telling first."""
        ...

    def reads(self, data: Mapping[str, Any]) -> bool:
        """Whether the JSON is a trace of this kind."""
        ...

    def trace_from_json(self, data: Any, place: str) -> AnyTrace:
        """The trace. Raises InputError that names what is wrong where."""
        ...

    def told_step(self, step: Any, trace: AnyTrace) -> str:
        """One step as a sentence."""
        ...

    @property
    def state_words(self) -> str:
        """How the abstract state after a step is introduced in a story."""
        ...

    @property
    def states_name(self) -> str:
        """How these states are called in the JSON of a witness."""
        ...

    def circumstances(self, trace: AnyTrace) -> Iterator[str]:
        """What is out of the ordinary in a short trace: without it the law would have held."""
        ...

    def one_sided(self, law: str) -> str:
        """What a law that holds leaves open all the same, if anything."""
        ...

    def clauses(self, law: str) -> Sequence[str]:
        """Where the law is from."""
        ...
