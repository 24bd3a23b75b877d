"""The judge of a sequential contract: which of its states explain what a store did, and which laws a reply breaks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from orderlab.model.contracts.asking import Asked, types_of
from orderlab.model.contracts.base import (
    ALL_OR_NOTHING,
    CANDIDATES_MAX,
    SPECIFICATION,
    AnyOf,
    Call,
    Contract,
    ContractLaw,
    Failed,
    Reply,
    State,
    brief,
)
from orderlab.model.errors import InputError

# -- the judge
# -----------------------------------------------------------------------------------------------------------------


class TooManyStates(InputError):
    """Operations of several clients have overlapped for so long that more states explain what was seen than are
    kept."""


class Violation(NamedTuple):
    """A reply that no state explains: the laws that it breaks, and why."""

    laws: tuple[str, ...]
    text: str
    is_open: bool = False
    """No law is broken whichever state the store was in: one of these is, and which, what was seen does not tell."""


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


KEPT_MAX = 100_000
"""Candidates, and effects of operations on a state, that a judge keeps."""
Way = dict[Any, Any]
"""An event, and the reply of what it begins -> the candidates after it, and the same of what comes next."""


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
        """How often a reply tested each law."""
        self.explained = 0
        """Replies that some state explained."""
        self._left: dict[Hashable, dict[State, tuple[State, ...]]] = {}
        """Answers of ``_after``, for the events of an overlap are gone through anew with every reply."""
        self._kept = 0
        self._gone_through: Way = {}
        """What explains the events that were gone through, event by event; from each quiet moment."""
        self._drawing: set[str] = set()
        """Operations seen to draw something, which their reply tells, or that of another."""
        self._last: tuple[object, object, int, frozenset[Candidate]] = (None, None, 0, frozenset())
        """What explained the events that were gone through last, for they are asked about again and again."""
        self._stopped: str = ""
        """How the last operation that was stopped part-way ended; "" if none was."""
        self._is_foreign = False

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
        began = max(at for at, event in enumerate(self.overlapping) if event.kind == "begin" and event.number == number)
        # The states that the call may have found: those in which it has not taken effect yet.
        before = self._explaining([*self.overlapping[:began], *self.overlapping[began + 1 :]])
        self.overlapping += (Event("finish", number, reply),)
        after = self._explaining_now()
        del self.under_way[number]
        if not after:
            return self._wrong(call, reply, [one.state for one in before])
        self.explained += 1
        self._count(call, reply, before)
        self._settle(after)
        return None

    def overlooked(self, waiting: Mapping[int, Call]) -> list[int]:
        """Of operations that wait those that no state lets go on waiting. One that has not begun here has done nothing
        but wait."""
        began = {event.number: at for at, event in enumerate(self.overlapping) if event.kind == "begin"}
        undone = {began[number] for number in waiting if number in self.under_way}
        states = [one.state for one in self._explaining_now() if not undone & one.done]
        return [
            number
            for number, call in waiting.items()
            if states and not any(self.asked.may_wait(state, call, self.now_ms) for state in states)
        ]

    def stop(self, number: int, how: str, part_way: bool, is_foreign: bool = False) -> None:
        """The operation was stopped, or nobody heard its reply: it took effect whole by now, or never will.

        ``part_way``: it may have been stopped between two of its effects. ``is_foreign``: by a value that no store
        puts there, so that what is left of it is a matter of atomicity alone.
        """
        self.overlapping += (Event("stop", number),)
        del self.under_way[number]
        if part_way:
            self._stopped, self._is_foreign = how, self._is_foreign or is_foreign
        self._settle(self._explaining_now())

    def _settle(self, after: frozenset[Candidate]) -> None:
        if not self.under_way:
            self.candidates, self.overlapping, self._quiet_ms = after, (), self.now_ms

    def states(self) -> list[State]:
        """The abstract states that are possible now."""
        return list({one.state: None for one in self._explaining_now()})

    @property
    def frozen(self) -> Hashable:
        """All of the judge that its verdicts depend on, but the moment."""
        under_way = tuple(sorted(self.under_way.items()))
        return self.candidates, self.overlapping, self._quiet_ms, under_way, self._stopped, self._is_foreign

    def thaw(self, frozen: Any, now_ms: int) -> None:
        """Be as ``frozen`` was at ``now_ms``."""
        self.candidates, self.overlapping, self._quiet_ms, under_way, self._stopped, self._is_foreign = frozen
        self.under_way = dict(under_way)
        self.now_ms = now_ms

    # -- candidates ----------------------------------------------------------------------------------------

    def _explaining_now(self) -> frozenset[Candidate]:
        """The candidates after all that has happened."""
        candidates, events, quiet_ms, explaining = self._last
        if not (candidates is self.candidates and events is self.overlapping and quiet_ms == self._quiet_ms):
            explaining = self._explaining(self.overlapping)
            self._last = self.candidates, self.overlapping, self._quiet_ms, explaining
        return explaining

    def _explaining(self, events: Sequence[Event]) -> frozenset[Candidate]:
        """The candidates after ``events``, with every operation under way having taken effect or not. What they are
        after each of them is kept: it is asked again with all that comes later."""
        heard = _replies(events)
        pool = tuple(heard.values())
        if self._kept >= KEPT_MAX:
            self._forget()
        found, now_ms = self.candidates, self._quiet_ms
        so_far: Way = self._gone_through.setdefault((found, now_ms), {})
        under_way: dict[int, Call] = {}
        operations: dict[int, int] = {}
        too_many = TooManyStates if len(found) > 1 or sum(one.kind == "begin" for one in events) > 1 else InputError
        for at, event in enumerate(events):
            asked: Hashable = event[:2]
            if event.kind == "begin":  # an operation is told apart by its beginning: one number may begin several
                operations[event.number] = at
                under_way[at] = event.value
                asked = event, *self._heard(at, event.value, heard, pool)
            elif event.kind == "at":
                now_ms = event.number
            else:
                ended = operations[event.number]
                del under_way[ended]
            if asked not in so_far:
                if event.kind == "begin":
                    after = self._closed(found, under_way, {at}, heard, pool, now_ms, too_many)
                elif event.kind == "at":
                    aged = frozenset(self._aged(one, now_ms) for one in found)
                    after = self._closed(aged, under_way, under_way.keys(), heard, pool, now_ms, too_many)
                else:
                    kept = (one for one in found if event.kind == "stop" or ended in one.done)
                    after = frozenset(Candidate(one.state, one.done - {ended}) for one in kept)
                so_far[asked] = after, {}
                self._kept += 1 + len(after)
            found, so_far = so_far[asked]
        return found

    def _closed(
        self,
        candidates: frozenset[Candidate],
        under_way: Mapping[int, Call],
        new: Set[int],
        heard: Mapping[int, Reply],
        pool: tuple[Reply, ...],
        now_ms: int,
        too_many: type[InputError],
    ) -> frozenset[Candidate]:
        """With every operation under way having taken effect in every order, or not. ``new``: those whose effects the
        candidates do not have yet at this moment. ``pool``: replies of others that may show what an operation drew
        that has not replied yet."""
        found = set(candidates)
        left = [(before, number) for before in candidates for number in new - before.done]
        known: dict[int, dict[State, tuple[State, ...]]] = {}
        for number, call in under_way.items():  # looked up once: it takes longer than to look up a state
            known[number] = self._left.setdefault((call, now_ms, *self._heard(number, call, heard, pool)), {})
        while left:
            before, number = left.pop()
            states = known[number].get(before.state)
            if states is None:
                states = self._after(before.state, under_way[number], number in heard, heard.get(number), pool, now_ms)
                known[number][before.state] = states
                self._kept += 1
            for state in states:
                more = Candidate(state, before.done | {number})
                if more not in found:
                    found.add(more)
                    left += [(more, other) for other in under_way.keys() - more.done]
            if len(found) > CANDIDATES_MAX:
                raise too_many(
                    f"{type(self.contract).__name__}: more than {CANDIDATES_MAX} states explain what was seen; "
                    "leave fewer choices open in outcomes"
                )
        return frozenset(found)

    def _heard(self, number: int, call: Call, heard: Mapping[int, Reply], pool: tuple[Reply, ...]) -> tuple[Any, ...]:
        """What the effect of an operation depends on besides: what it replied, or, of one that draws something and has
        not replied, what others heard."""
        is_heard = number in heard
        return types_of(call), is_heard, heard[number] if is_heard else pool if call.name in self._drawing else ()

    def _after(
        self, state: State, call: Call, is_heard: bool, reply: Reply, pool: tuple[Reply, ...], now_ms: int
    ) -> tuple[State, ...]:
        """The states in which ``call`` leaves ``state`` at this moment, with this reply if it was heard."""
        left = self._leaving(state, call, is_heard, reply, pool, now_ms)
        return tuple(dict.fromkeys(self.asked.elapse(after, now_ms) for after in left))

    def _leaving(
        self, state: State, call: Call, is_heard: bool, reply: Reply, pool: Sequence[Reply], now_ms: int
    ) -> Iterator[State]:
        for outcome in self.asked.outcomes(state, call, now_ms):
            allowed = outcome[0]
            if isinstance(allowed, AnyOf):
                if call.name not in self._drawing:  # what is known of it may hold for other replies alone
                    self._drawing.add(call.name)
                    self._forget()
                open_yet = (reply,) if is_heard else (allowed.example, *pool)
                told = [one for one in open_yet if self.asked.accepts(allowed, one)]
            else:
                told = [allowed] if not is_heard or is_same(allowed, reply) else []
            for one in told:
                yield self.asked.after(outcome, one)

    def _aged(self, one: Candidate, now_ms: int) -> Candidate:
        return Candidate(self.asked.elapse(one.state, now_ms), one.done)

    def _forget(self) -> None:
        """Begin anew with what is kept."""
        self._left, self._gone_through, self._kept = {}, {}, 0

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
        is_open = False
        if isinstance(reply, Failed):
            laws = [SPECIFICATION]
        else:
            verdicts = {one.name: [self._said(one, state, call, reply) for state in before] for one in self.laws}
            for name, said in verdicts.items():
                self.tested[name] += any(verdict is not None for verdict in said)
            laws = [name for name, told in verdicts.items() if told and all(verdict is False for verdict in told)]
            perhaps = [name for name, told in verdicts.items() if False in told]
            is_open = not laws and len(perhaps) > 1
            laws = laws or perhaps or [SPECIFICATION]
        if self._stopped:
            laws = [ALL_OR_NOTHING, *(() if self._is_foreign else laws)]
        allowed = sorted(
            {
                str(one) if isinstance(one, AnyOf) else brief(one)
                for state in before
                for one, _ in self.asked.outcomes(state, call, self.now_ms)
            }
        )
        if before and not allowed:
            raise self.asked.nothing_allowed(before[0], call)
        told = (
            f"{call} replied {reply if isinstance(reply, Failed) else brief(reply)}; allowed: "
            f"{', '.join(allowed[:4]) or 'nothing'}"
        )
        if self._stopped:
            told += f" (after {self._stopped})"
        return Violation(tuple(laws), told, is_open)


def _replies(events: Sequence[Event]) -> dict[int, Reply]:
    """Where an operation begins among the events -> its reply, of those that have replied."""
    began: dict[int, int] = {}
    found: dict[int, Reply] = {}
    for at, event in enumerate(events):
        if event.kind == "begin":
            began[event.number] = at
        elif event.kind == "finish":
            found[began[event.number]] = event.value
    return found


def is_same(one: Reply, other: Reply) -> bool:
    """Whether two plain replies are equal in type and value (1 is not True, and no text)."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other)
