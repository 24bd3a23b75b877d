"""Sets, records and sequences as values of a variable: bounded, and each of them a number.

A value that a method sees never changes: `s.asked |= {c}`, `s.queue = s.queue[1:]`, `s.head = s.head.replace(to=c)`, as
in TLA+. In a state it is its *code*, one integer of a known range, so that whatever serves integers serves these:
packing, the compiled engine, checkpoints, workers. A set has a bit for each value that may be a member; a record is a
number in mixed radix, its first field the most significant; a sequence is its length and then its elements in mixed
radix, the first the least significant, with zeros behind the last.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from orderlab.model.spec.variables import Domain, IndexSet, Renaming, SpecificationError

MEMBERS_AT_MOST = 4096
"""Values that may be members of one set."""
BITS_AT_MOST = 4096
KEPT_AT_MOST = 1 << 16
"""Codes whose values are remembered, for each domain."""


class NoSuchMethod(SpecificationError, AttributeError):
    """Also an AttributeError, for Python asks any object what it has."""


def _order(value: Any) -> Any:
    """What members are sorted by: as their codes, for integers and records of integers."""
    if isinstance(value, AbstractSet):
        return tuple(sorted(map(_order, value), reverse=True))
    return tuple(map(_order, value)) if isinstance(value, tuple) else value


class Members(frozenset[Any]):
    """A set of the state. It is gone through in ascending order, in every process."""

    def __iter__(self) -> Iterator[Any]:
        ordered = self.__dict__.get("ordered")
        if ordered is None:
            ordered = self.__dict__["ordered"] = sorted(super().__iter__(), key=_order)
        return iter(ordered)

    def __or__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__or__(other))

    def __ror__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__ror__(other))  # type: ignore[misc]

    def __and__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__and__(other))

    def __rand__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__rand__(other))  # type: ignore[misc]

    def __sub__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__sub__(other))

    def __rsub__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__rsub__(other))  # type: ignore[misc]

    def __xor__(self, other: AbstractSet[Any]) -> Any:
        return _members(super().__xor__(other))

    def __getattr__(self, name: str) -> Any:
        raise NoSuchMethod(
            f'a set of the state is a value and has no "{name}": s.x |= {{value}} puts one in, s.x -= {{value}} '
            "takes one out"
        )


def _members(made: Any) -> Any:
    return made if made is NotImplemented else Members(frozenset.__iter__(made))


class Elements(tuple[Any, ...]):
    """A sequence of the state."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise NoSuchMethod(
            f'a sequence of the state is a value and has no "{name}": s.x += (value,) appends, s.x = s.x[1:] drops '
            "the first"
        )


class Fields:
    """What the values of a record have beside their fields."""

    __slots__ = ()
    _fields: tuple[str, ...]

    def __setattr__(self, name: str, value: Any) -> None:
        raise SpecificationError(f"a record of the state is a value: write s.x = s.x.replace({name}=...)")

    def replace(self, **changed: Any) -> Any:
        """The record with some fields changed."""
        if unknown := changed.keys() - set(self._fields):
            raise SpecificationError(f"replace: no field {min(unknown)}; the fields are {', '.join(self._fields)}")
        return self._replace(**changed)  # type: ignore[attr-defined]


class Shown(list[Any]):
    """A set or a sequence as JSON has it, that a report shows as a whole."""

    def __init__(self, entries: Iterable[Any], marks: str):
        super().__init__(entries)
        self.marks = marks


@dataclass(frozen=True)
class Compound(Domain):
    """A domain whose values are no integers, but have integers as their codes."""

    _values: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)
    _codes: dict[Any, int] = field(default_factory=dict, compare=False, repr=False)
    _renamed: dict[Any, int] = field(default_factory=dict, compare=False, repr=False)

    is_compound = True

    def value(self, code: int) -> Any:
        found = self._values.get(code)
        if found is None:
            found = _kept(self._values, code, self._decoded(code))
        return found

    def code(self, given: Any, place: str) -> int:
        plain = self._hashable(given, place)
        try:
            found = self._codes.get(plain)
        except TypeError:
            raise SpecificationError(f"{place}: {given!r} holds what cannot be compared by value") from None
        if found is None:
            found = self._encoded(plain, place)
            _kept(self._codes, plain, found)
        return found

    def renamed(self, code: int, renaming: Renaming) -> int:
        key = (code, *(renaming.get(one) for one in self.mentioned()))
        found = self._renamed.get(key)
        if found is None:
            found = _kept(self._renamed, key, self.code(self._with_names(code, renaming), ""))
        return found

    def _hashable(self, given: Any, place: str) -> Any:
        raise NotImplementedError

    def _decoded(self, code: int) -> Any:
        raise NotImplementedError

    def _encoded(self, plain: Any, place: str) -> int:
        raise NotImplementedError

    def _with_names(self, code: int, renaming: Renaming) -> Any:
        raise NotImplementedError


def _kept(kept: dict[Any, Any], key: Any, found: Any) -> Any:
    if len(kept) >= KEPT_AT_MOST:
        kept.clear()
    kept[key] = found
    return found


_NOTHING = Domain(0, 0)


@dataclass(frozen=True)
class SetDomain(Compound):
    """The sets of values of a domain."""

    member: Domain = _NOTHING

    def mentioned(self) -> tuple[IndexSet, ...]:
        return self.member.mentioned()

    def show(self, code: int) -> Any:
        return Shown((self.member.show(one) for one in self.codes_of(code)), "{}")

    def codes_of(self, code: int) -> list[int]:
        """The codes of the members, in ascending order."""
        return [self.member.low + at for at in range(code.bit_length()) if code >> at & 1]

    def _decoded(self, code: int) -> Any:
        return Members(map(self.member.value, self.codes_of(code)))

    def _hashable(self, given: Any, place: str) -> Any:
        if not isinstance(given, AbstractSet):
            raise SpecificationError(f"{place}: {given!r} is no set; write {{value}}, or set() for the empty one")
        return frozenset(given)

    def _encoded(self, plain: Any, place: str) -> int:
        # Each bit once: 1 and 1.0 are one member.
        codes = {self.member.code(one, f"a member of {place}") for one in sorted(plain, key=repr)}
        return sum(1 << (one - self.member.low) for one in codes)

    def _with_names(self, code: int, renaming: Renaming) -> Any:
        return frozenset(self.member.value(self.member.renamed(one, renaming)) for one in self.codes_of(code))

    def codes(self) -> Iterable[int]:
        if not self.member.is_compound:
            return range(self.high + 1)
        members = list(self.member.codes())
        return (sum(1 << (m - self.member.low) for m, is_in in zip(members, chosen, strict=True) if is_in)
                for chosen in product((False, True), repeat=len(members)))  # fmt: skip

    def values(self) -> int:
        return int(2 ** self.member.values())


@dataclass(frozen=True)
class RecordDomain(Compound):
    """Records: for each field a value of its domain. Called with its fields it makes one."""

    fields: tuple[tuple[str, Domain], ...] = ()
    made: Any = field(default=None, compare=False, repr=False)
    _made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The record with these fields. Raises SpecificationError for a field too many, too few, or outside its
        domain."""
        key = (given, *named.items())
        try:
            found = self._made.get(key)
        except TypeError:  # a list or a set as a field
            return self._of(given, named)
        return _kept(self._made, key, self._of(given, named)) if found is None else found

    def _of(self, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        names = [name for name, _ in self.fields]
        told = dict(zip(names, given, strict=False)) | named
        if len(given) + len(named) != len(names) or told.keys() != set(names):
            raise SpecificationError(f"record: its fields are {', '.join(names)}; give each of them once")
        return self.value(self.code(tuple(told[name] for name in names), "record"))

    def mentioned(self) -> tuple[IndexSet, ...]:
        return tuple(dict.fromkeys(one for _, domain in self.fields for one in domain.mentioned()))

    def show(self, code: int) -> Any:
        shown = zip(self.fields, self.codes_of(code), strict=True)
        return {name: domain.show(one) for (name, domain), one in shown}

    def codes_of(self, code: int) -> list[int]:
        """The codes of the fields."""
        found: list[int] = []
        for _, domain in reversed(self.fields):
            code, digit = divmod(code, domain.size)
            found.insert(0, domain.low + digit)
        return found

    def _decoded(self, code: int) -> Any:
        return self.made(
            *(domain.value(one) for (_, domain), one in zip(self.fields, self.codes_of(code), strict=True))
        )

    def _hashable(self, given: Any, place: str) -> Any:
        if not isinstance(given, tuple) or len(given) != len(self.fields):
            names = ", ".join(name for name, _ in self.fields)
            raise SpecificationError(f"{place}: {given!r} is no record with the fields {names}")
        return given

    def _encoded(self, plain: Any, place: str) -> int:
        code = 0
        for (name, domain), value in zip(self.fields, plain, strict=True):
            code = code * domain.size + domain.code(value, f"{place}.{name}") - domain.low
        return code

    def _with_names(self, code: int, renaming: Renaming) -> Any:
        codes = zip(self.fields, self.codes_of(code), strict=True)
        return tuple(domain.value(domain.renamed(one, renaming)) for (_, domain), one in codes)

    def codes(self) -> Iterable[int]:
        for chosen in product(*(list(domain.codes()) for _, domain in self.fields)):
            code = 0
            for (_, domain), one in zip(self.fields, chosen, strict=True):
                code = code * domain.size + one - domain.low
            yield code

    def values(self) -> int:
        found = 1
        for _, domain in self.fields:
            found *= domain.values()
        return found


@dataclass(frozen=True)
class SequenceDomain(Compound):
    """Sequences of at most `longest` values of a domain."""

    element: Domain = _NOTHING
    longest: int = 0

    def mentioned(self) -> tuple[IndexSet, ...]:
        return self.element.mentioned()

    def show(self, code: int) -> Any:
        return Shown((self.element.show(one) for one in self.codes_of(code)), "[]")

    def codes_of(self, code: int) -> list[int]:
        """The codes of the elements."""
        rest, length = divmod(code, self.longest + 1)
        found = []
        for _ in range(length):
            rest, digit = divmod(rest, self.element.size)
            found.append(self.element.low + digit)
        return found

    def _decoded(self, code: int) -> Any:
        return Elements(map(self.element.value, self.codes_of(code)))

    def _hashable(self, given: Any, place: str) -> Any:
        if not isinstance(given, list | tuple):
            raise SpecificationError(f"{place}: {given!r} is no sequence; write (value,), or () for the empty one")
        return tuple(given)

    def _encoded(self, plain: Any, place: str) -> int:
        if len(plain) > self.longest:
            raise SpecificationError(
                f"{place}: a sequence of {len(plain)} elements, and its domain has at most {self.longest};"
                " widen the domain, or guard the action"
            )
        rest = 0
        for at in reversed(range(len(plain))):
            rest = rest * self.element.size + self.element.code(plain[at], f"{place}[{at}]") - self.element.low
        return rest * (self.longest + 1) + len(plain)

    def _with_names(self, code: int, renaming: Renaming) -> Any:
        return tuple(self.element.value(self.element.renamed(one, renaming)) for one in self.codes_of(code))

    def codes(self) -> Iterable[int]:
        every = list(self.element.codes())
        for length in range(self.longest + 1):
            for chosen in product(every, repeat=length):
                rest = 0
                for one in reversed(chosen):
                    rest = rest * self.element.size + one - self.element.low
                yield rest * (self.longest + 1) + length

    def values(self) -> int:
        return sum(self.element.values() ** length for length in range(self.longest + 1))


def set_of(member: Domain) -> SetDomain:
    """The sets of values of a domain: `set_of(element(self.everyone))`, `set_of(self.message)`.

    Raises SpecificationError where more than 4,096 values may be members.
    """
    _checked(member, "set_of")
    if member.size > MEMBERS_AT_MOST:
        told = f"{member.size:,}" if member.size < 10**12 else f"about 2^{member.size.bit_length() - 1}"
        raise SpecificationError(
            f"set_of: {told} values may be members, and at most {MEMBERS_AT_MOST:,} are possible; narrow their domain"
        )
    return SetDomain(0, (1 << member.size) - 1, member=member)


def record(**fields: Domain) -> RecordDomain:
    """Records with these fields: `message = record(kind=choice(Kind), to=element(self.everyone))`, and
    `message(kind=Kind.ASK, to=c)` is one."""
    if not fields:
        raise SpecificationError("record: has no fields; name at least one, field=domain")
    size = 1
    for name, domain in fields.items():
        _checked(domain, f"record: field {name}")
        if name.startswith("_") or hasattr(tuple, name) or name == "replace":
            raise SpecificationError(f"record: {name} is a name that every record has already; choose another")
        size *= domain.size
    _not_too_large(size, "record")
    values = namedtuple("record", list(fields))  # type: ignore[misc]
    made = type("record", (Fields, values), {"__slots__": ()})
    return RecordDomain(0, size - 1, fields=tuple(fields.items()), made=made)


def sequence_of(element: Domain, at_most: int) -> SequenceDomain:
    """Sequences of at most so many values of a domain."""
    _checked(element, "sequence_of")
    if at_most < 0:
        raise SpecificationError(f"sequence_of: at most {at_most} elements; give a number from 0 on")
    if at_most * element.size.bit_length() > 2 * BITS_AT_MOST:
        _not_too_large(1 << (2 * BITS_AT_MOST), "sequence_of")
    size = (at_most + 1) * element.size**at_most
    _not_too_large(size, "sequence_of")
    return SequenceDomain(0, size - 1, element=element, longest=at_most)


def _checked(domain: Any, what: str) -> None:
    if not isinstance(domain, Domain):
        raise SpecificationError(f"{what}: {domain!r} is no domain; use integer, boolean, choice, element, record, ...")


def _not_too_large(size: int, what: str) -> None:
    if size.bit_length() > BITS_AT_MOST:
        raise SpecificationError(f"{what}: its values take more than {BITS_AT_MOST:,} bits; narrow the domains")
