"""Requests of clients of Redis: one, many of a kind as columns, and those of one write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from orderlab.sim.redis.prepared_command import Column, Render, columns_of

Argv = Sequence[bytes]


class Request(NamedTuple):
    """A command of a client. ``kind`` and ``messages`` say what it costs: equal ones cost about the same."""

    argv: Argv
    kind: str
    messages: int = 1


class Calls(Sequence[Request]):
    """Commands of one kind as columns. Their arguments are made where they run: what waits for a flush is numbers
    beside each other, and not a dozen objects for each command, which the processor's caches have lost when its turn
    comes."""

    def __init__(self, render: Render, columns: tuple[Column, ...], kind: str, messages: int = 1) -> None:
        """``render`` makes the arguments of the commands at given places of the columns, which nobody changes any
        more."""
        self._render = render
        self._columns = columns_of(columns)
        self._count = len(columns[0])
        self.kind = kind, messages

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        return Request(self.argvs((place,))[0], *self.kind)

    def argvs(self, places: Iterable[int]) -> list[list[bytes]]:
        """The arguments of the commands at ``places``."""
        return self._render(places, self._columns)


class Batch:
    """Commands of one write, in order: of each part, those at the given places."""

    def __init__(self, parts: Sequence[tuple[Sequence[Request], Sequence[int]]], count: int) -> None:
        """``count``: the commands of all parts."""
        self._parts = parts
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Request]:
        return (commands[place] for commands, places in self._parts for place in places)

    def argvs(self) -> list[Argv]:
        """The arguments of each."""
        argvs: list[Argv] = []
        for commands, places in self._parts:
            argvs += commands.argvs(places) if type(commands) is Calls else [commands[place].argv for place in places]
        return argvs

    def kinds(self) -> list[tuple[str, int]]:
        """What says what each costs."""
        kinds: list[tuple[str, int]] = []
        for commands, places in self._parts:
            kinds += (
                [commands.kind] * len(places) if type(commands) is Calls else [commands[place][1:] for place in places]
            )
        return kinds

    def times(self) -> dict[tuple[str, int], int]:
        """How many there are of each kind, in the order in which kinds come first."""
        times: dict[tuple[str, int], int] = {}
        for commands, places in self._parts:
            if type(commands) is Calls:
                times[commands.kind] = times.get(commands.kind, 0) + len(places)
            else:
                for place in places:
                    kind = commands[place][1:]
                    times[kind] = times.get(kind, 0) + 1
        return times


Commands = Sequence[Request] | Batch


def batch_of(commands: Commands) -> Batch:
    return commands if isinstance(commands, Batch) else Batch([(commands, range(len(commands)))], len(commands))
