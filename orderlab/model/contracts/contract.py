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

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from orderlab.model.contracts.asked import Asked
from orderlab.model.errors import InputError

State = Hashable
Reply = Any
"""A plain value: None, an integer, text, or a tuple of such; what the binding made of the store's reply."""

SPECIFICATION = "specification"
"""The law that a reply breaks which the specification does not allow and no law of the contract names."""
ALL_OR_NOTHING = "all-or-nothing"
CANDIDATES_MAX = 4096
"""More abstract states than this at once, and the contract leaves too much open to be judged."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call on a store: the operation's name and its fields."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, name: str, **fields: Any) -> Call:
        """The call ``name(**fields)``."""
        return cls(name, tuple(fields.items()))

    def __getitem__(self, field: str) -> Any:
        """The value of a field. Raises KeyError."""
        for name, value in self.fields:
            if name == field:
                return value
        raise KeyError(field)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.fields)})"


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


Outcome = tuple[Reply, Any]
"""A reply, or AnyOf, and the state that goes with it: a state, or a function from the reply to one."""
LawCheck = Callable[[Any, State, Call, Reply, int], "bool | None"]


@dataclass(frozen=True)
class ContractLaw:
    """A law by which a single reply can be wrong."""

    name: str
    statement: str
    check: LawCheck
    """``check(contract, before, call, reply, now_ms)``: None when the reply does not put the law to the test."""


def law(name: str, statement: str) -> Callable[[LawCheck], LawCheck]:
    """Mark a method ``(self, before, call, reply, now_ms) -> bool | None`` as the law ``name``."""

    def mark(check: LawCheck) -> LawCheck:
        check.law = (name, statement)  # type: ignore[attr-defined]
        return check

    return mark


class Contract:
    """Base class of a kind of store. See the module's text; ``lua/lock`` and ``lua/limiter`` are worked examples."""

    operations: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Operation -> the names of its fields, as templates of ``store.toml`` use them."""
    clients: ClassVar[int] = 2
    """Clients of the exhaustive scopes."""
    steps_per_client: ClassVar[int] = 3
    """Operations of each client in the exhaustive scopes."""

    def initial(self) -> State:
        """The state of an empty store."""
        raise NotImplementedError

    def outcomes(self, state: Any, call: Call, now_ms: int) -> Iterable[Outcome]:
        """All that is allowed: each reply with the state that goes with it."""
        raise NotImplementedError

    def elapse(self, state: Any, now_ms: int) -> Any:
        """The state at ``now_ms`` if nothing but time has happened. Must be idempotent."""
        return state

    def deadlines_ms(self, state: Any) -> Iterable[int]:
        """Moments at which time alone changes something; those before and after each are visited."""
        return ()

    def size(self, state: Any) -> int:
        """How much a store may hold in this state, in a unit of your own. As it is: how many values the state is made of. A
        store that goes on growing while this does not breaks ``no-residue``."""
        return size_of(state)

    def calls(self, client: int, seen: Sequence[Exchange]) -> Iterable[Call]:
        """The calls that are worth trying by a client that has seen ``seen``, the plainest first."""
        raise NotImplementedError

    @property
    def laws(self) -> tuple[ContractLaw, ...]:
        """The laws of the class, in the order in which they are written."""
        found: dict[str, ContractLaw] = {}
        for kind in reversed(type(self).__mro__):
            for member in vars(kind).values():
                if hasattr(member, "law"):
                    name, statement = member.law
                    if name in found and found[name].check.__name__ != member.__name__:
                        raise InputError(f'{kind.__name__}.{member.__name__}: there is a law "{name}" already; name it otherwise')
                    found[name] = ContractLaw(name, statement, member)
        return tuple(found.values())


def size_of(state: Any) -> int:
    """How many plain values a state is made of."""
    if is_dataclass(state) and not isinstance(state, type):
        return sum(size_of(getattr(state, one.name)) for one in fields(state))
    if isinstance(state, Mapping):
        return sum(size_of(key) + size_of(value) for key, value in state.items())
    return sum(map(size_of, state)) if isinstance(state, tuple | frozenset) else 1


class Situation(NamedTuple):
    """What must have happened for a law to mean something, and the operations without which it cannot happen."""

    name: str
    needs: tuple[str, ...] = ()


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

    def to_json(self) -> dict[str, Any]: ...


class Terms(Protocol):
    """What a kind of store says of itself without any store: its laws, what puts them to the test, its steps in JSON and in
    words, what is explored in small scopes. ``orderlab.properties.contracts.kind.Kind`` adds what takes a store to try."""

    @property
    def name(self) -> str: ...

    @property
    def laws(self) -> Mapping[str, str]:
        """Law -> statement."""
        ...

    @property
    def situations(self) -> Mapping[str, Sequence[Situation]]:
        """Law -> what must come about before it has been put to the test; none for a law that counts its tests itself."""
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


class Violation(NamedTuple):
    """A reply that no state explains: the laws that it breaks, and why."""

    laws: tuple[str, ...]
    text: str


class Candidate(NamedTuple):
    """A state that explains the replies so far, with the operations under way that have taken effect in it."""

    state: State
    done: frozenset[int] = frozenset()


class Event(NamedTuple):
    """Something that a judge was told since the last moment at which no operation was under way."""

    kind: str
    """``begin``, ``finish``, ``stop``, or ``at`` for time that passed."""
    number: int
    """Of the operation; for ``at`` the moment in ms."""
    value: Any = None
    """``begin``: the call. ``finish``: the reply."""


class Judge:
    """Holds what clients see of a store against a contract. Time must not go back.

    ``begin`` and ``finish`` bracket an operation; between the two it takes effect at one moment. While operations
    overlap, the events since the last quiet moment are kept and gone through anew with every reply, since only the
    reply tells which of the choices that ``outcomes`` leaves open was taken.
    """

    def __init__(self, contract: Contract, now_ms: int) -> None:
        self.contract = contract
        self.asked = Asked(contract)
        self.laws = contract.laws
        self.now_ms = now_ms
        self.candidates: frozenset[Candidate] = frozenset({Candidate(self.asked.initial())})
        """At the last quiet moment, or now if nothing is under way."""
        self.overlapping: tuple[Event, ...] = ()
        """Events since the last quiet moment."""
        self._quiet_ms = now_ms
        self.under_way: dict[int, Call] = {}
        self.tested: dict[str, int] = {one.name: 0 for one in self.laws}
        """How often a reply put each law to the test."""
        self._stopped: str = ""
        """How the last operation that was stopped part-way ended; "" if none was."""

    def at(self, now_ms: int) -> None:
        """Let time pass until ``now_ms``."""
        if now_ms == self.now_ms:
            return
        self.now_ms = now_ms
        if self.under_way:
            self.overlapping += (Event("at", now_ms),)
        else:
            self._quiet_ms = now_ms
            self.candidates = frozenset(self._aged(one, now_ms) for one in self.candidates)

    def begin(self, number: int, call: Call) -> None:
        """Operation ``number`` (any integer that is not under way) has been called."""
        self.under_way[number] = call
        self.overlapping += (Event("begin", number, call),)

    def finish(self, number: int, reply: Reply) -> Violation | None:
        """The operation has replied. What is wrong with that, if no state explains it."""
        call = self.under_way[number]
        before = self._explaining(self.overlapping)
        self.overlapping += (Event("finish", number, reply),)
        after = self._explaining(self.overlapping)
        del self.under_way[number]
        if not after:
            return self._wrong(call, reply, [one.state for one in before])
        self._count(call, reply, before)
        self._settle(after)
        return None

    def stop(self, number: int, how: str, part_way: bool) -> None:
        """The operation was stopped, or nobody heard its reply: it took effect whole by now, or never will.

        ``part_way``: it may have been stopped between two of its effects.
        """
        self.overlapping += (Event("stop", number),)
        del self.under_way[number]
        if part_way:
            self._stopped = how
        self._settle(self._explaining(self.overlapping))

    def _settle(self, after: frozenset[Candidate]) -> None:
        if not self.under_way:
            self.candidates, self.overlapping, self._quiet_ms = after, (), self.now_ms

    def states(self) -> list[State]:
        """The abstract states that are possible now."""
        return list({one.state: None for one in self._explaining(self.overlapping)})

    @property
    def frozen(self) -> Hashable:
        """All of the judge that its verdicts depend on, but the moment."""
        return self.candidates, self.overlapping, self._quiet_ms, tuple(sorted(self.under_way.items())), self._stopped

    def thaw(self, frozen: Any, now_ms: int) -> None:
        """Be as ``frozen`` was at ``now_ms``."""
        self.candidates, self.overlapping, self._quiet_ms, under_way, self._stopped = frozen
        self.under_way = dict(under_way)
        self.now_ms = now_ms

    # -- candidates ----------------------------------------------------------------------------------------

    def _explaining(self, events: Sequence[Event]) -> frozenset[Candidate]:
        """The candidates after ``events``, with every operation under way having taken effect or not."""
        heard = {one.number: one.value for one in events if one.kind == "finish"}
        pool = tuple(heard.values())
        found, now_ms = self.candidates, self._quiet_ms
        under_way: dict[int, Call] = {}
        for event in events:
            if event.kind == "begin":
                under_way[event.number] = event.value
                found = self._closed(found, under_way, heard, pool, now_ms)
            elif event.kind == "at":
                now_ms = event.number
                found = self._closed(frozenset(self._aged(one, now_ms) for one in found), under_way, heard, pool, now_ms)
            else:
                del under_way[event.number]
                kept = (one for one in found if event.kind == "stop" or event.number in one.done)
                found = frozenset(Candidate(one.state, one.done - {event.number}) for one in kept)
        return found

    def _closed(
        self,
        candidates: frozenset[Candidate],
        under_way: Mapping[int, Call],
        heard: Mapping[int, Reply],
        pool: Sequence[Reply],
        now_ms: int,
    ) -> frozenset[Candidate]:
        """With every operation under way having taken effect in every order, or not. ``pool``: replies of others that
        may show what an operation drew that has not replied yet."""
        found = set(candidates)
        fresh = list(candidates)
        while fresh:
            one = fresh.pop()
            for number in under_way.keys() - one.done:
                for state in self._after(one.state, under_way[number], number in heard, heard.get(number), pool, now_ms):
                    more = self._aged(Candidate(state, one.done | {number}), now_ms)
                    if more not in found:
                        found.add(more)
                        fresh.append(more)
            if len(found) > CANDIDATES_MAX:
                raise InputError(
                    f"{type(self.contract).__name__}: more than {CANDIDATES_MAX} states explain what was seen; "
                    "leave fewer choices open in outcomes"
                )
        return frozenset(found)

    def _after(
        self, state: State, call: Call, is_heard: bool, reply: Reply, pool: Sequence[Reply], now_ms: int
    ) -> Iterator[State]:
        """The states in which ``call`` leaves ``state``, with this reply if it was heard."""
        for outcome in self.asked.outcomes(state, call, now_ms):
            allowed = outcome[0]
            if isinstance(allowed, AnyOf):
                open_yet = (reply,) if is_heard else (allowed.example, *pool)
                told = [one for one in open_yet if self.asked.accepts(allowed, one)]
            else:
                told = [allowed] if not is_heard or is_same(allowed, reply) else []
            for one in told:
                yield self.asked.after(outcome, one)

    def _aged(self, one: Candidate, now_ms: int) -> Candidate:
        return Candidate(self.asked.elapse(one.state, now_ms), one.done)

    # -- laws ----------------------------------------------------------------------------------------------

    def _holds(self, one: ContractLaw, state: State, call: Call, reply: Reply) -> bool | None:
        return self.asked.holds(one, state, call, reply, self.now_ms)

    def _said(self, one: ContractLaw, state: State, call: Call, reply: Reply) -> bool | None:
        """What a law says of a reply that no state explains; nothing where it stumbles over one of a type that the
        contract never gives (``reply > 0`` of a text): that is the store's fault, not the law's."""
        try:
            return self._holds(one, state, call, reply)
        except InputError:
            return None

    def _count(self, call: Call, reply: Reply, before: Iterable[Candidate]) -> None:
        for one in self.laws:
            if any(self._holds(one, candidate.state, call, reply) is not None for candidate in before):
                self.tested[one.name] += 1

    def _wrong(self, call: Call, reply: Reply, before: Sequence[State]) -> Violation:
        """Which laws the reply breaks: those that no candidate keeps, else those that some candidate breaks."""
        if isinstance(reply, Failed):
            laws = [SPECIFICATION]
        else:
            verdicts = {one.name: [self._said(one, state, call, reply) for state in before] for one in self.laws}
            for name, said in verdicts.items():
                self.tested[name] += any(verdict is not None for verdict in said)
            laws = [name for name, told in verdicts.items() if told and all(verdict is False for verdict in told)]
            laws = laws or [name for name, told in verdicts.items() if False in told] or [SPECIFICATION]
        if self._stopped:
            laws.insert(0, ALL_OR_NOTHING)
        allowed = sorted({str(one) if isinstance(one, AnyOf) else repr(one) for state in before for one, _ in self.asked.outcomes(state, call, self.now_ms)})
        if before and not allowed:
            raise self.asked.nothing_allowed(before[0], call)
        told = f"{call} replied {reply if isinstance(reply, Failed) else repr(reply)}; allowed: {', '.join(allowed[:4]) or 'nothing'}"
        if self._stopped:
            told += f" (after {self._stopped})"
        return Violation(tuple(laws), told)


def is_same(one: Reply, other: Reply) -> bool:
    """Whether two plain replies are equal in type and value (1 is not True, and no text)."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)
