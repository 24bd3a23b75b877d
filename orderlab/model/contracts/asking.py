"""What its author's class of a contract answers, checked: a mistake in it is one line, never a verdict.

Every question goes through ``Asked``: answers have the right types and are finite, states can be told apart, nothing
loops for ever, and what is asked twice is answered alike. The last is tried on the first questions and on some later
ones, since a contract that draws random numbers would make each verdict a matter of luck.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Any

from orderlab.code_of_user import Guard, described, ended
from orderlab.model.contracts.base import (
    AnyOf,
    Call,
    Contract,
    ContractLaw,
    Exchange,
    Failed,
    Outcome,
    shown,
)
from orderlab.model.errors import InputError

ANSWERS_MAX = 4096
"""Of one question: outcomes of a call, calls of a client, deadlines of a state."""


TWICE_FIRST, TWICE_EVERY = 300, 50
"""The first questions are asked twice, then one of so many."""


REMEMBERED_MAX = 20_000
"""Answers of either kind that are kept."""


CLIENTS_MAX, STEPS_MAX = 8, 20


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
        self._is_ours = type(contract).__module__.startswith("orderlab.")
        self._guards: dict[str, Guard] = {}
        self._questions = 0
        # An answer depends on its question alone, and overlapping operations ask the same ones again with every reply.
        self._allowed: dict[Hashable, list[Outcome]] = {}
        self._aged: dict[Hashable, Hashable] = {}
        self._deadlines: dict[Hashable, list[int]] = {}
        self._worth: dict[Hashable, list[Call]] = {}
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
        asked = (state, call, types_of(call), now_ms)
        found = self._allowed.get(asked)
        if found is None:
            found = self._outcomes(state, call, now_ms)
            keep(self._allowed, asked, found)
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
        aged = self._aged.get(asked)
        if aged is None:  # a state that is None is asked for again
            aged = self._elapsed(state, now_ms)
            keep(self._aged, asked, aged)
        return aged

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
        if (known := self._deadlines.get(state)) is not None:
            return known
        given = lambda: f"state {_short(state)}"  # noqa: E731 - told only if something is wrong
        found = self._list("deadlines_ms", given, lambda: self.contract.deadlines_ms(state))
        for one in found:
            if type(one) is not int:
                raise self._wrong("deadlines_ms", given, f"gave {_short(one)}; give moments as integers, in ms")
        if self._is_due() and found != self._list("deadlines_ms", given, lambda: self.contract.deadlines_ms(state)):
            raise self._changes("deadlines_ms", given)
        keep(self._deadlines, state, found)
        return found

    def calls(self, client: int, seen: Sequence[Exchange]) -> list[Call]:
        """The calls that are worth trying by a client that has seen ``seen``."""
        asked = (client, tuple(seen))
        try:
            if (known := self._worth.get(asked)) is not None:
                return [*known]
        except TypeError:  # a reply that cannot be hashed, as of an outcome that is no plain value
            return self._calls(client, seen)
        found = self._calls(client, seen)
        keep(self._worth, asked, found)
        return [*found]

    def _calls(self, client: int, seen: Sequence[Exchange]) -> list[Call]:
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
        """Raises InputError for what is no call of an operation of the contract, with all of its fields but optional
        ones."""
        if not isinstance(call, Call):
            raise self._wrong(part, given, f"gave {_short(call)}; give Call.of(operation, field=value)")
        if call.name not in self.contract.operations:
            raise self._wrong(part, given, f'no operation "{call.name}"; one of {", ".join(self.contract.operations)}')
        wanted, fields = set(self.contract.operations[call.name]), {name for name, _ in call.fields}
        missing = wanted - fields - {*self.contract.optional.get(call.name, ())}
        if missing or fields - wanted:
            odd = ", ".join(
                [f"{one} is missing" for one in sorted(missing)] + [f"{one} is none" for one in sorted(fields - wanted)]
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
            if self._is_ours:  # which ends, and leaves everything as it was
                return question()
            with self._guard(part):
                return ended(question)
        except (Exception, SystemExit) as error:
            raise self._wrong(part, given, described(error), error) from error

    def _guard(self, part: str) -> Guard:
        if part not in self._guards:
            self._guards[part] = Guard(f"{self._place(part, None)}{self.name}.{part}")
        return self._guards[part]

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
        if self._is_ours:
            return
        try:
            ended(lambda: hash(state))
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


def types_of(call: Call) -> tuple[type, ...]:
    """Those of the fields' values, since 1 is equal to True and 1.0."""
    return tuple([type(value) for _, value in call.fields])


def keep(known: dict[Any, Any], question: Hashable, answer: Any) -> None:
    """Remember an answer; all others are forgotten where there are too many."""
    if len(known) >= REMEMBERED_MAX:
        known.clear()
    known[question] = answer
