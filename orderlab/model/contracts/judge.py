"""The judge of a sequential contract, and what its author's class answers, checked: a mistake in it is one line, never
a verdict.

Every question goes through ``Asked``: answers have the right types and are finite, states can be told apart, nothing
loops for ever, and what is asked twice is answered alike. The last is tried on the first questions and on some later
ones, since a contract that draws random numbers would make each verdict a matter of luck.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from orderlab.model.contracts.contract import (
    ALL_OR_NOTHING,
    CANDIDATES_MAX,
    SPECIFICATION,
    AnyOf,
    Call,
    Contract,
    ContractLaw,
    Exchange,
    Failed,
    Outcome,
    Reply,
    State,
    shown,
)
from orderlab.model.errors import InputError

ANSWERS_MAX = 4096
"""Of one question: outcomes of a call, calls of a client, deadlines of a state."""
SECONDS_MAX = 20.0
"""Processor time of one question. It only stops what would not end: no verdict depends on it."""
TWICE_FIRST, TWICE_EVERY = 300, 50
"""The first questions are asked twice, then one of so many."""
REMEMBERED_MAX = 20_000
"""Answers of either kind that are kept."""
CLIENTS_MAX, STEPS_MAX = 8, 20


class _TimedOut(Exception):
    """A question took more than SECONDS_MAX."""


Given = Callable[[], str]
"""Tells what a question was about. Only a mistake is told, and a state of many things is long."""


def nothing() -> str:
    """Of a question about nothing in particular."""
    return ""


class Asked:
    """A contract whose answers are checked. Every method raises InputError for a mistake of the author."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.name = type(contract).__name__
        self._questions = 0
        # An answer depends on its question alone, and overlapping operations ask the same ones again with every reply.
        self._allowed: dict[Hashable, list[Outcome]] = {}
        self._aged: dict[Hashable, Hashable] = {}
        self._check_class()

    def initial(self) -> Hashable:
        """The state of an empty store."""
        first, second = (
            self._ask("initial", nothing, self.contract.initial),
            self._ask("initial", nothing, self.contract.initial),
        )
        self._check_state("initial", nothing, first)
        if not _alike(first, second):
            raise self._wrong(
                "initial", nothing, f"{_short(first)} is not equal to a second one; compare states by value"
            )
        return first  # type: ignore[no-any-return]

    def outcomes(self, state: Hashable, call: Call, now_ms: int) -> list[Outcome]:
        """All that is allowed."""
        asked = (state, call, _types_of(call), now_ms)
        found = self._allowed.get(asked)
        if found is None:
            found = self._outcomes(state, call, now_ms)
            _keep(self._allowed, asked, found)
        return found

    def _outcomes(self, state: Hashable, call: Call, now_ms: int) -> list[Outcome]:
        given = lambda: f"state {_short(state)}, {call}, now_ms {now_ms}"  # noqa: E731 - told only if something is wrong
        found = self._list("outcomes", given, lambda: self.contract.outcomes(state, call, now_ms))
        for one in found:
            if not isinstance(one, tuple) or len(one) != 2:
                raise self._wrong(
                    "outcomes", given, f"yielded {_short(one)}; yield a reply and the state that goes with it"
                )
            reply, after = one
            if isinstance(reply, AnyOf):
                if not self._ask("outcomes", given, lambda reply=reply: reply.accepts(reply.example)):  # type: ignore[misc]
                    raise self._wrong("outcomes", given, f"AnyOf does not accept its own example {reply.example!r:.60}")
            elif not is_plain(reply):
                cure = "a reply is None, an integer, text, bytes or a tuple of such"
                raise self._wrong("outcomes", given, f"yielded the reply {_short(reply)}; {cure}")
            if not callable(after):
                self._check_state("outcomes", given, after)
        if self._is_due():
            again = self._list("outcomes", given, lambda: self.contract.outcomes(state, call, now_ms))
            if not _alike(*([self._settled(one, given) for one in some] for some in (found, again))):
                raise self._changes("outcomes", given)
        return found

    def after(self, outcome: Outcome, reply: Any) -> Hashable:
        """The state in which an outcome leaves the store once ``reply`` is known."""
        after: Any = outcome[1]
        if not callable(after):
            return after  # type: ignore[no-any-return]
        state = self._ask("outcomes", lambda: f"reply {_short(reply)}", lambda: after(reply))
        self._check_state("outcomes", lambda: f"reply {_short(reply)}", state)
        return state  # type: ignore[no-any-return]

    def accepts(self, choice: Any, reply: Any) -> bool:
        """Whether an AnyOf takes ``reply``."""
        return bool(self._ask("outcomes", lambda: f"reply {_short(reply)}", lambda: choice.accepts(reply)))

    def elapse(self, state: Hashable, now_ms: int) -> Hashable:
        """The state at ``now_ms`` if nothing but time has happened."""
        asked = (state, now_ms)
        if asked not in self._aged:
            _keep(self._aged, asked, self._elapsed(state, now_ms))
        return self._aged[asked]

    def _elapsed(self, state: Hashable, now_ms: int) -> Hashable:
        given = lambda: f"state {_short(state)}, now_ms {now_ms}"  # noqa: E731 - told only if something is wrong
        aged = self._ask("elapse", given, lambda: self.contract.elapse(state, now_ms))
        self._check_state("elapse", given, aged)
        if self._is_due():
            if not _alike(aged, self._ask("elapse", given, lambda: self.contract.elapse(state, now_ms))):
                raise self._changes("elapse", given)
            again = self._ask(
                "elapse", lambda: f"state {_short(aged)}, now_ms {now_ms}", lambda: self.contract.elapse(aged, now_ms)
            )
            if not _alike(aged, again):
                told = f"gave {_short(aged)}, and from there at the same moment {_short(again)}; it must be idempotent"
                raise self._wrong("elapse", given, told)
        return aged  # type: ignore[no-any-return]

    def may_wait(self, state: Hashable, call: Call, now_ms: int) -> bool:
        """Whether a call may go on waiting."""
        given = lambda: f"state {_short(state)}, {call}, now_ms {now_ms}"  # noqa: E731 - told only if something is wrong
        return bool(self._ask("may_wait", given, lambda: self.contract.may_wait(state, call, now_ms)))

    def deadlines_ms(self, state: Hashable) -> list[int]:
        """Moments at which time alone changes something."""
        given = lambda: f"state {_short(state)}"  # noqa: E731 - told only if something is wrong
        found = self._list("deadlines_ms", given, lambda: self.contract.deadlines_ms(state))
        for one in found:
            if type(one) is not int:
                raise self._wrong("deadlines_ms", given, f"gave {_short(one)}; give moments as integers, in ms")
        if self._is_due() and found != self._list("deadlines_ms", given, lambda: self.contract.deadlines_ms(state)):
            raise self._changes("deadlines_ms", given)
        return found

    def calls(self, client: int, seen: Sequence[Exchange]) -> list[Call]:
        """The calls that are worth trying by a client that has seen ``seen``."""
        given = lambda: f"client {client}, seen {_short(seen)}"  # noqa: E731 - told only if something is wrong
        found = self._list("calls", given, lambda: self.contract.calls(client, seen))
        for one in found:
            self.check_call(one, given)
        if self._is_due() and found != self._list("calls", given, lambda: self.contract.calls(client, seen)):
            raise self._changes("calls", given)
        return found

    def size(self, state: Hashable) -> int:
        """How much a store may hold in a state."""
        given = lambda: f"state {_short(state)}"  # noqa: E731 - told only if something is wrong
        found = self._ask("size", given, lambda: self.contract.size(state))
        if type(found) is not int:
            raise self._wrong("size", given, f"gave {_short(found)}; give a whole number")
        if self._is_due() and found != self._ask("size", given, lambda: self.contract.size(state)):
            raise self._changes("size", given)
        return found

    def check_call(self, call: Any, given: Given = nothing, part: str = "calls") -> None:
        """Raises InputError for what is no call of an operation of the contract, with all of its fields."""
        if not isinstance(call, Call):
            raise self._wrong(part, given, f"gave {_short(call)}; give Call.of(operation, field=value)")
        if call.name not in self.contract.operations:
            raise self._wrong(part, given, f'no operation "{call.name}"; one of {", ".join(self.contract.operations)}')
        wanted, fields = set(self.contract.operations[call.name]), {name for name, _ in call.fields}
        if wanted != fields:
            odd = ", ".join(
                [f"{one} is missing" for one in sorted(wanted - fields)]
                + [f"{one} is none" for one in sorted(fields - wanted)]
            )
            raise self._wrong(
                part,
                given,
                f"{call}: {odd}; operations has {call.name}({', '.join(self.contract.operations[call.name])})",
            )
        for name, value in call.fields:
            if not is_plain(value) and type(value) not in (bool, float):
                raise self._wrong(
                    part, given, f"{call}: {name} is no plain value; give numbers, text, bytes or tuples of such"
                )

    def holds(self, law: ContractLaw, state: Hashable, call: Call, reply: Any, now_ms: int) -> bool | None:
        """What a law says of a reply."""
        given = lambda: f"state {_short(state)}, {call}, reply {_short(reply)}"  # noqa: E731 - told only if something is wrong
        told = self._ask(f"law {law.name}", given, lambda: law.check(self.contract, state, call, reply, now_ms))
        if told is not None and told is not True and told is not False:
            raise self._wrong(f"law {law.name}", given, f"returned {_short(told)}; return True, False or None")
        return told

    def nothing_allowed(self, state: Hashable, call: Call) -> InputError:
        """The mistake of a contract that allows no reply at all to a call."""
        told = "yields nothing, so that every reply is wrong; yield what is allowed, or leave the call out of calls"
        return self._wrong("outcomes", lambda: f"state {_short(state)}, {call}", told)

    # -- asking --------------------------------------------------------------------------------------------

    def _ask(self, part: str, given: Given, question: Callable[[], Any]) -> Any:
        try:
            return _ended(question)
        except (Exception, SystemExit) as error:
            said = (
                f"does not end within {SECONDS_MAX:g} s"
                if isinstance(error, _TimedOut)
                else f"{type(error).__name__}: {error}"
            )
            raise self._wrong(part, given, said, error) from error

    def _list(self, part: str, given: Given, question: Callable[[], Any]) -> list[Any]:
        found = self._ask(part, given, lambda: list(islice(question(), ANSWERS_MAX + 1)))
        if len(found) > ANSWERS_MAX:
            raise self._wrong(part, given, f"more than {ANSWERS_MAX:,} answers; leave fewer choices open")
        return found  # type: ignore[no-any-return]

    def _is_due(self) -> bool:
        self._questions += 1
        return self._questions <= TWICE_FIRST or self._questions % TWICE_EVERY == 0

    def _settled(self, outcome: Outcome, given: Given) -> tuple[Any, Any]:
        """An outcome as values that can be compared."""
        reply = outcome[0]
        shown = (reply.words, reply.example) if isinstance(reply, AnyOf) else reply
        return shown, self.after(outcome, reply.example if isinstance(reply, AnyOf) else reply)

    def _check_state(self, part: str, given: Given, state: Any) -> None:
        try:
            hash(state)
        except Exception as error:
            told = f"the state {_short(state)} cannot be hashed ({error}); use tuples, frozensets, frozen dataclasses"
            raise self._wrong(part, given, told) from None

    def _check_class(self) -> None:
        for name, low, high in (("clients", 1, CLIENTS_MAX), ("steps_per_client", 1, STEPS_MAX)):
            value = getattr(self.contract, name)
            if type(value) is not int or not low <= value <= high:
                raise self._wrong(name, nothing, f"{value!r:.60}; give a number from {low} to {high}")
        for part in ("initial", "outcomes", "calls"):
            if getattr(type(self.contract), part) is getattr(Contract, part):
                told = (
                    "is missing; write initial(self), outcomes(self, state, call, now_ms) and calls(self, client, seen)"
                )
                raise InputError(f"{inspect.getfile(type(self.contract))}: {self.name}.{part} {told}")
        if not self.contract.operations:
            raise self._wrong("operations", nothing, "there are none; name each operation with its fields")

    def _changes(self, part: str, given: Given) -> InputError:
        told = "asked twice, it answered differently; let it depend on its arguments alone, and compare states by value"
        return self._wrong(part, given, told)

    def _wrong(self, part: str, given: Given, told: str, error: BaseException | None = None) -> InputError:
        asked = given()
        shown = " ".join(f"{told}{f' (for {asked})' if asked else ''}".split())
        cure = "" if "; " in told else "; correct the contract"
        return InputError(f"{self._place(part, error)}{self.name}.{part}: {shown}{cure}")

    def _place(self, part: str, error: BaseException | None) -> str:
        """The author's line that raised, or where the part begins."""
        method = next((one.check for one in self.contract.laws if part == f"law {one.name}"), None)
        method = method or getattr(type(self.contract), part, None)
        code = getattr(method, "__code__", None)
        file = code.co_filename if code is not None else inspect.getfile(type(self.contract))
        line = code.co_firstlineno if code is not None else 0
        frame = error.__traceback__ if error is not None else None
        while frame is not None:
            if frame.tb_frame.f_code.co_filename == file:
                line = frame.tb_lineno
            frame = frame.tb_next
        return f"{file}:{line}: " if line else f"{file}: "


def is_plain(value: Any) -> bool:
    """Whether a store's reply can be this: None, an integer, text, bytes, or a tuple of such."""
    if isinstance(value, Failed):
        return True
    return all(map(is_plain, value)) if type(value) is tuple else value is None or type(value) in (int, str, bytes)


def _alike(one: Any, other: Any) -> bool:
    return bool(one == other)


def _short(value: Any) -> str:
    try:
        text = shown(value)
    except Exception as error:
        return f"{type(value).__name__} whose repr raises {type(error).__name__}"
    return text if len(text) <= 160 else f"{text[:160]}…"


def _types_of(call: Call) -> tuple[type, ...]:
    """Those of the fields' values, since 1 is equal to True and 1.0."""
    return tuple([type(value) for _, value in call.fields])


def _keep(known: dict[Any, Any], question: Hashable, answer: Any) -> None:
    """Remember an answer; all others are forgotten where there are too many."""
    if len(known) >= REMEMBERED_MAX:
        known.clear()
    known[question] = answer


def _ended(question: Callable[[], Any]) -> Any:
    """The answer. Raises _TimedOut after SECONDS_MAX of processor time; in the main thread, where alone signals
    arrive."""
    if threading.current_thread() is not threading.main_thread():
        return question()
    _Alarm.install()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
    try:
        return question()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


class _Alarm:
    """The handler of the timer. To ask whose it is costs more than most questions to a contract, so that is done now
    and then."""

    EVERY = 256
    left = 0

    @classmethod
    def install(cls) -> None:
        cls.left -= 1
        if cls.left < 0:
            cls.left = cls.EVERY
            if signal.getsignal(signal.SIGVTALRM) is not _raise_endless:
                signal.signal(signal.SIGVTALRM, _raise_endless)


def _raise_endless(number: int, frame: object) -> None:
    raise _TimedOut


# -- the judge
# -----------------------------------------------------------------------------------------------------------------


class TooManyStates(InputError):
    """Operations of several clients have overlapped for so long that more states explain what was seen than are
    kept."""


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
        self.explained = 0
        """Replies that some state explained."""
        self._left: dict[Hashable, tuple[State, ...]] = {}
        """Answers of ``_after``, for the events of an overlap are gone through anew with every reply."""
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
        began = max(at for at, event in enumerate(self.overlapping) if event.kind == "begin" and event.number == number)
        # The states that the call may have found; those in which it has taken effect already say nothing of its reply.
        before = [one for one in self._explaining(self.overlapping) if began not in one.done]
        self.overlapping += (Event("finish", number, reply),)
        after = self._explaining(self.overlapping)
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
        states = [one.state for one in self._explaining(self.overlapping) if not undone & one.done]
        return [
            number
            for number, call in waiting.items()
            if states and not any(self.asked.may_wait(state, call, self.now_ms) for state in states)
        ]

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
        heard = _replies(events)
        pool = tuple(heard.values())
        found, now_ms = self.candidates, self._quiet_ms
        under_way: dict[int, Call] = {}
        operations: dict[int, int] = {}
        too_many = TooManyStates if len(found) > 1 or sum(one.kind == "begin" for one in events) > 1 else InputError
        for at, event in enumerate(events):
            if event.kind == "begin":  # an operation is told apart by its beginning: one number may begin several
                operations[event.number] = at
                under_way[at] = event.value
                found = self._closed(found, under_way, heard, pool, now_ms, too_many)
            elif event.kind == "at":
                now_ms = event.number
                aged = frozenset(self._aged(one, now_ms) for one in found)
                found = self._closed(aged, under_way, heard, pool, now_ms, too_many)
            else:
                ended = operations[event.number]
                del under_way[ended]
                kept = (one for one in found if event.kind == "stop" or ended in one.done)
                found = frozenset(Candidate(one.state, one.done - {ended}) for one in kept)
        return found

    def _closed(
        self,
        candidates: frozenset[Candidate],
        under_way: Mapping[int, Call],
        heard: Mapping[int, Reply],
        pool: tuple[Reply, ...],
        now_ms: int,
        too_many: type[InputError],
    ) -> frozenset[Candidate]:
        """With every operation under way having taken effect in every order, or not. ``pool``: replies of others that
        may show what an operation drew that has not replied yet."""
        found = set(candidates)
        fresh = list(candidates)
        while fresh:
            one = fresh.pop()
            for number in under_way.keys() - one.done:
                for state in self._after(
                    one.state, under_way[number], number in heard, heard.get(number), pool, now_ms
                ):
                    more = self._aged(Candidate(state, one.done | {number}), now_ms)
                    if more not in found:
                        found.add(more)
                        fresh.append(more)
            if len(found) > CANDIDATES_MAX:
                raise too_many(
                    f"{type(self.contract).__name__}: more than {CANDIDATES_MAX} states explain what was seen; "
                    "leave fewer choices open in outcomes"
                )
        return frozenset(found)

    def _after(
        self, state: State, call: Call, is_heard: bool, reply: Reply, pool: tuple[Reply, ...], now_ms: int
    ) -> tuple[State, ...]:
        """The states in which ``call`` leaves ``state``, with this reply if it was heard."""
        asked = (state, call, _types_of(call), is_heard, reply, pool, now_ms)
        known = self._left.get(asked)
        if known is None:
            known = tuple(self._leaving(state, call, is_heard, reply, pool, now_ms))
            _keep(self._left, asked, known)
        return known

    def _leaving(
        self, state: State, call: Call, is_heard: bool, reply: Reply, pool: Sequence[Reply], now_ms: int
    ) -> Iterator[State]:
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
        allowed = sorted(
            {
                str(one) if isinstance(one, AnyOf) else repr(one)
                for state in before
                for one, _ in self.asked.outcomes(state, call, self.now_ms)
            }
        )
        if before and not allowed:
            raise self.asked.nothing_allowed(before[0], call)
        told = (
            f"{call} replied {reply if isinstance(reply, Failed) else repr(reply)}; allowed: "
            f"{', '.join(allowed[:4]) or 'nothing'}"
        )
        if self._stopped:
            told += f" (after {self._stopped})"
        return Violation(tuple(laws), told)


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
