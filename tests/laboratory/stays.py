"""How often a message, or a sweep file, comes back to a file of the project that it has left.

What is followed is known by its marks: the numbers and bytes that a message is in the hands of brokers, Kafka and
stores; the path of a sweep file, and what was read from it. A function *has* it when it is called with an argument, or
a variable that it closes over, that holds a mark, or when what it calls returns one; within lists, arrays and the
fields of values as well. A *stay* is a longest run of such functions of one file, a *return* a stay in a file that was
left before.

Not seen: machine code, other threads and processes, what an object keeps between calls, and a mark behind more than
``DEPTH`` containers.

``python -m tests.laboratory.stays`` prints both walks; ``tests/test_stays.py`` pins how many returns they
may have.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

import numpy as np

PACKAGE = Path(__file__).parents[2] / "orderlab"
FIRST_INSTRUCTION = 8
"""A frame that is further on when it is called is a generator that goes on: nothing is handed to it."""
DEPTH = 4


@dataclass
class Walk:
    """The files of the project that had something, one for each stay."""

    files: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    """The first that had it, by stay."""

    def touch(self, file: str, function: str) -> None:
        """A function has it now."""
        if not self.files or self.files[-1] != file:
            self.files.append(file)
            self.functions.append(function)

    @property
    def stays(self) -> int:
        """Longest runs in one file."""
        return len(self.files)

    @property
    def returns(self) -> int:
        """Stays in a file that was left before."""
        return len(self.files) - len(set(self.files))

    def __str__(self) -> str:
        seen: set[str] = set()
        lines = []
        for file, function in zip(self.files, self.functions, strict=True):
            lines.append(f"  {'again' if file in seen else '     '} {file}: {function}")
            seen.add(file)
        return "\n".join([*lines, f"{self.stays} stays, {self.returns} returns"])


def holds(value: Any, marks: Collection[Any], kinds: tuple[type, ...] = (), depth: int = DEPTH) -> bool:
    """Whether ``value`` is a mark or of one of the kinds, or has one within."""
    if kinds and isinstance(value, kinds):
        return True
    if isinstance(value, int | np.integer | str | Path):
        return not isinstance(value, bool) and value in marks
    if isinstance(value, bytes):
        return any(isinstance(mark, bytes) and mark in value for mark in marks)
    if isinstance(value, np.ndarray):
        numbers = [mark for mark in marks if isinstance(mark, int)]
        return value.dtype.kind == "i" and bool(np.isin(value, numbers).any())
    if not depth:
        return False
    inner: Sequence[Any] = ()
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inner = list(value)
    elif is_dataclass(value) and not isinstance(value, type) and type(value).__dataclass_params__.frozen:  # type: ignore[attr-defined]
        inner = [getattr(value, each.name) for each in fields(value)]
    return any(holds(each, marks, kinds, depth - 1) for each in inner)


class Follower:
    """Follows what has the marks through every call of a project's function."""

    def __init__(self, marks: Collection[Any], kinds: tuple[type, ...] = (), until: CodeType | None = None) -> None:
        """``kinds``: classes of which any object is followed. ``until``: the function with whose call the walk ends."""
        self.marks = frozenset(marks)
        self.kinds = kinds
        self.until = until
        self.walk = Walk()
        self._is_over = False
        self._names: dict[str, str | None] = {}

    def file_of(self, frame: FrameType) -> str | None:
        """The project's file in which a frame runs, below the package."""
        path = frame.f_code.co_filename
        if path not in self._names:
            inside = Path(path).is_relative_to(PACKAGE)
            self._names[path] = Path(path).relative_to(PACKAGE).as_posix() if inside else None
        return self._names[path]

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        if self._is_over or event not in ("call", "return"):
            return
        file = self.file_of(frame)
        if file is None or frame.f_code.co_name.startswith("<"):
            return
        if event == "call":
            if frame.f_lasti <= FIRST_INSTRUCTION and self._is_given(frame):
                self.walk.touch(file, frame.f_code.co_name)
                self._is_over = frame.f_code is self.until
        elif frame.f_back is not None and holds(argument, self.marks, self.kinds):
            caller = self.file_of(frame.f_back)
            if caller is not None:
                self.walk.touch(caller, frame.f_back.f_code.co_name)

    def _is_given(self, frame: FrameType) -> bool:
        code, values = frame.f_code, frame.f_locals
        names = (*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *code.co_freevars)
        given = [values[name] for name in names if name in values and name != "cls"]
        return any(holds(value, self.marks, self.kinds) for value in given)

    @contextmanager
    def following(self) -> Iterator[Follower]:
        """Follow what is called within."""
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            yield self
        finally:
            sys.setprofile(before)


def walk_of_a_message() -> Walk:
    """That of one message of ``tbmq-p2p`` with its defaults, but for a hundred publishers: from the broker that reads
    it to the row that tells of its delivery."""
    from orderlab.sim.mqtt.broker.delivery import Delivery
    from orderlab.sim.systems.tbmq_p2p import P2PSettings, P2PSystem

    system = P2PSystem(P2PSettings(publishers=100), 0, [])
    traffic = system.world.traffic
    number = 357  # no client has so high a code
    record = number * len(traffic.subscribers) + number % traffic.schedule.count
    follower = Follower([number, record, b"%09d" % number], until=Delivery.record.__code__)
    with follower.following():
        system.run()
    return follower.walk


SWEEP = """
system = "tbmq-p2p"
[base]
publishers = 10
duration_s = 0.01
[axes]
limit = [5, 20]
"""


def walk_of_a_sweep_file() -> Walk:
    """That of a small sweep file, from the command line to the end of its runs, which are in other processes."""
    import typer

    from orderlab.commands.sweep import sweep
    from orderlab.spark_sweeps.sweep_file.specification import SweepFile

    with TemporaryDirectory() as folder:
        file = Path(folder) / "small.toml"
        file.write_text(SWEEP)
        follower = Follower([file, str(file)], kinds=(SweepFile,))
        with suppress(typer.Exit), redirect_stdout(StringIO()), follower.following():
            sweep(
                file, None, "pool", str(Path(folder) / "out"), False, False, None, None, False, False, False, None,
                True, None, True,
            )  # fmt: skip
    return follower.walk


def main() -> None:
    """Print both walks."""
    for name, walk in (("A message", walk_of_a_message()), ("A sweep file", walk_of_a_sweep_file())):
        print(f"{name}:\n{walk}")


if __name__ == "__main__":
    from orderlab import exit_codes

    exit_codes.run(main, "stays")
