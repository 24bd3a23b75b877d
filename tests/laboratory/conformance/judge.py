"""Runs one sequence on a subject (the kernel, or fakeredis) and on a real server, and says where they differ, with as
few steps as show it.

The server gets the whole sequence in one pipeline, with a script at its end that dumps every key; the subject then
starts at the moment that the server's TIME gave. Time passes on the server by moving every deadline nearer.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from orderlab.sim.redis.backends.backend import EXCEPTION
from orderlab.sim.redis.backends.dump import frozen_value, is_large_encoding
from orderlab.sim.redis.database import name_in
from orderlab.sim.redis.numbers import INTEGER_MAX
from orderlab.sim.redis.registry import COMMANDS, LATER, load_commands
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import FrozenKeyspace
from orderlab.sim.redis.unsupported import UnsupportedCommand
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.redis.wire import Connection
from tests.laboratory.conformance.comparison import (
    KILLED_BY_FUNCTIONS,
    TOLERANCE_MS,
    agree,
    bearable,
    explanation,
    explanation_of_keyspaces,
)
from tests.laboratory.conformance.grammar import Argv
from tests.laboratory.conformance.sequences import DEFAULT_ENCODINGS, SMALL_ENCODINGS, CommandSequence, Step
from tests.laboratory.conformance.subjects import Subject

ADVANCE = b"""
for database = 0, 15 do
  redis.call('SELECT', database)
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local deadline = redis.call('PEXPIRETIME', key)
    if deadline >= 0 then redis.call('PEXPIREAT', key, string.format('%.0f', deadline - ARGV[1])) end
  end
end
"""
DUMP = b"""
local readers = {stream = {}, string = {'GET'}, hash = {'HGETALL'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}}
local dump = {}
for database = 0, 15 do
  redis.call('SELECT', database)
  for _, key in ipairs(redis.call('KEYS', '*')) do
    local kind = redis.call('TYPE', key).ok
    local reader = readers[kind]
    dump[#dump + 1] = {database, key, kind, redis.call('OBJECT', 'ENCODING', key), redis.call('PEXPIRETIME', key),
      kind == 'stream' and redis.call('XINFO', 'STREAM', key, 'FULL', 'COUNT', 0) or redis.call(reader[1], key, unpack(reader, 2))}
  end
end
return dump
"""  # noqa: E501
PEXPIRETIME_OF_6_2 = b"""
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local function deadline_of(key)
  local left = redis.call('PTTL', key)
  return left < 0 and left or now + left
end
"""


def script_for(script: bytes, version: ServerVersion) -> bytes:
    """``ADVANCE`` or ``DUMP`` for a server that may lack PEXPIRETIME, and that shows less of streams."""
    if version.has((7, 0)):
        return script
    streamless = script.replace(b"dump[#dump", b"if kind ~= 'stream' then dump[#dump").replace(b"2))}", b"2))} end")
    return PEXPIRETIME_OF_6_2 + streamless.replace(b"redis.call('PEXPIRETIME', key)", b"deadline_of(key)")


RELATIVE = re.compile(rb"(?<![a-z])p?(?:ex|px|expire|setex)(?![a-z])", re.IGNORECASE)
"""A word that sets a deadline relative to now, also inside a script."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Where kernel and server part."""

    sequence: CommandSequence
    index: int
    """Of the step whose replies differ; the number of steps when only the final keyspaces do."""
    what: str
    kind: str
    """What sort of difference: reply, type, error text, error only here, no error here, exception, keyspace."""

    @property
    def command(self) -> str:
        """Name of the command whose replies differ."""
        if self.index >= len(self.sequence.steps):
            return "(keyspace)"
        step = self.sequence.steps[self.index]
        return "(time)" if isinstance(step, int) else step[0].decode(errors="replace").lower()


@dataclass
class Tally:
    """What has been compared so far."""

    commands: Counter[bytes] = field(default_factory=Counter)
    """By lower-case name, as clients sent them; unknown names under ``?``."""
    successes: Counter[bytes] = field(default_factory=Counter)
    """Those that did not end in an error."""
    options: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)
    """(command, upper-case word)."""
    sequences: int = 0
    unsupported: Counter[str] = field(default_factory=Counter)
    """What the kernel refused as unsupported; the rest of such a sequence is not compared."""
    by_version: Counter[str] = field(default_factory=Counter)
    """Differences that the server's version explains (``versions``); the rest of such a sequence is not compared."""

    def note(self, argv: Argv, reply: Reply) -> None:
        """Count one compared command."""
        name = argv[0].lower()
        if name not in COMMANDS and name not in LATER:
            name = b"?"
        self.commands[name] += 1
        if not isinstance(reply, ErrorReply):
            self.successes[name] += 1
            for word in argv[1:]:
                if word.isupper():
                    self.options[name, word] += 1

    def add(self, other: Tally) -> None:
        """Add the counts of another run."""
        self.commands += other.commands
        self.successes += other.successes
        self.options += other.options
        self.sequences += other.sequences
        self.unsupported += other.unsupported
        self.by_version += other.by_version


class Judge:
    """Compares one subject with a server, which is all its own."""

    def __init__(self, server: Connection, subject: Subject) -> None:
        load_commands()
        self.server = server
        self.subject = subject
        self.tally = Tally()
        self.version = version_of(server)
        self.is_its_own = subject.version is not DEFAULT
        """The subject is meant to be this server: nothing that later versions do otherwise is excused."""
        server.demand(b"DEBUG", b"SET-ACTIVE-EXPIRE", b"0")  # or DBSIZE would depend on the moment

    def compare(self, sequence: CommandSequence) -> Disagreement | None:
        """The first difference, or None."""
        return next(self.compare_all([sequence]))

    def compare_all(self, sequences: Sequence[CommandSequence]) -> Iterator[Disagreement | None]:
        """The same for many: the server works on the next sequence while the subject works on this one."""
        waiting: deque[tuple[CommandSequence, int]] = deque()
        try:
            for drawn in sequences:
                sequence = replace(drawn, steps=bearable(self.version, drawn.steps, self.is_its_own))
                commands = self._pipeline(sequence)
                self.server.send(commands)
                waiting.append((sequence, len(commands)))
                if len(waiting) > 1:
                    first, count = waiting.popleft()
                    yield self._compare(first, self.server.receive(count))
            while waiting:
                first, count = waiting.popleft()
                yield self._compare(first, self.server.receive(count))
        finally:
            for _, count in waiting:  # the caller has seen enough: leave no reply for the next comparison
                self.server.receive(count)

    def _pipeline(self, sequence: CommandSequence) -> list[Argv]:
        limits = SMALL_ENCODINGS if sequence.has_small_encodings else DEFAULT_ENCODINGS
        is_old = not self.subject.version.has((7, 0))
        settings = [
            word
            for name, limit in limits.items()
            for word in (name.replace(b"listpack", b"ziplist") if is_old else name, b"%d" % limit)
        ]
        advance, dump = (script_for(script, self.subject.version) for script in (ADVANCE, DUMP))
        of_settings = [settings] if not is_old else [settings[at : at + 2] for at in range(0, len(settings), 2)]
        commands: list[Argv] = [(b"CONFIG", b"SET", *each) for each in of_settings]
        commands += [(b"HELLO", b"%d" % sequence.resp), (b"TIME",)]
        for step in sequence.steps:
            commands.append((b"EVAL", advance, b"0", b"%d" % step) if isinstance(step, int) else step)
        commands += [(b"RESET",), (b"EVAL", dump, b"0"), (b"FLUSHALL",)]
        flush_functions = (b"FUNCTION", b"FLUSH") if self.version not in KILLED_BY_FUNCTIONS else (b"PING",)
        return [*commands, flush_functions, (b"SCRIPT", b"FLUSH") if _loads_scripts(sequence) else (b"PING",)]

    def _compare(self, sequence: CommandSequence, replies: list[Reply]) -> Disagreement | None:
        before_time = len(SMALL_ENCODINGS) + 1 if not self.subject.version.has((7, 0)) else 2
        (seconds, microseconds), *theirs, _, dump, _, _, _ = replies[before_time:]
        start_ms = int(seconds) * 1000 + int(microseconds) // 1000
        subject = self.subject
        subject.begin(sequence, start_ms)
        self.tally.sequences += 1
        before: Reply = None
        for index, (step, server) in enumerate(zip(sequence.steps, theirs, strict=True)):
            if isinstance(step, int):
                subject.advance(step)
                continue
            queued = subject.queued() if step[0].lower() == b"exec" else None
            try:
                reply = subject.execute(step)
            except UnsupportedCommand as error:
                self.tally.unsupported[str(error)] += 1
                return None
            except Exception as error:  # a crash of the subject is the worst disagreement, and is to be shrunk too
                return Disagreement(sequence, index, f"{subject.name} raised {error!r}, server {server!r}", "exception")
            if not self._accepts(step, reply, server, before, queued):
                why = None if self.is_its_own else explanation(self.version, sequence.steps, index, reply, server)
                if why is not None:
                    self.tally.by_version[why] += 1
                    return None
                what = f"{subject.name} {reply!r}, server {server!r}"
                return Disagreement(sequence, index, what, kind_of_difference(reply, server))
            before = reply
            self.tally.note(step, server)
        is_exact = self.subject.version.has((7, 0)) and not _has_relative_times(sequence)
        tolerance_ms = 0 if is_exact else TOLERANCE_MS
        lines = subject.differences(read_dump(dump, subject.now_ms - start_ms), tolerance_ms)
        lines = [line for line in lines if self.subject.version.has((7, 0)) or "'stream'" not in line]
        why = explanation_of_keyspaces(self.version, sequence.steps) if lines and not self.is_its_own else None
        if why is not None:
            self.tally.by_version[why] += 1
            return None
        return Disagreement(sequence, len(sequence.steps), "; ".join(lines), "keyspace") if lines else None

    def _accepts(self, argv: Argv, reply: Reply, server: Reply, before: Reply, queued: list[Argv] | None) -> bool:
        is_large = self.subject.is_large
        if queued and isinstance(reply, list) and isinstance(server, list) and len(reply) == len(server) == len(queued):
            each = zip(queued, reply, server, [None, *reply], strict=False)
            return all(agree(one, ours, theirs, is_large(one), ahead) for one, ours, theirs, ahead in each)
        return agree(argv, reply, server, is_large(argv), before)


def version_of(server: Connection) -> tuple[int, ...]:
    """What INFO says: (7, 0, 15)."""
    lines = server.demand(b"INFO", b"server").decode().splitlines()
    found = next(line for line in lines if line.startswith("redis_version:"))
    return tuple(map(int, found.partition(":")[2].split(".")))


def kind_of_difference(reply: Reply, server: Reply) -> str:
    """Sorts two replies that differ; see ``Disagreement.kind``."""
    if isinstance(reply, ErrorReply):
        if reply.message.startswith(EXCEPTION):
            return "exception"
        return "error text" if isinstance(server, ErrorReply) else "error only here"
    if isinstance(server, ErrorReply):
        return "no error here"
    return "reply" if type(reply) is type(server) else "type"


def _loads_scripts(sequence: CommandSequence) -> bool:
    """Whether scripts are asked for by their SHA-1: then the next sequence must not find them.

    Not done every time, because the server takes a while to build its Lua state anew.
    """
    names = (step[0].lower() for step in sequence.steps if not isinstance(step, int))
    return any(name.startswith((b"evalsha", b"script")) for name in names)


def _has_relative_times(sequence: CommandSequence) -> bool:
    return any(isinstance(step, int) or any(map(RELATIVE.search, step)) for step in sequence.steps)


def read_dump(dump: Reply, offset_ms: int) -> FrozenKeyspace:
    """The keyspace that the script ``DUMP`` found, on a clock that is ``offset_ms`` ahead."""
    if isinstance(dump, ErrorReply):
        raise dump
    keyspace: FrozenKeyspace = {}
    for database, key, kind, encoding, deadline_ms, value in dump:
        if deadline_ms < -1:  # Lua made a double of it, which is beyond the integers
            deadline_ms = INTEGER_MAX
        frozen = frozen_value(kind, value, is_large_encoding(kind, encoding))
        keyspace[name_in(database, key)] = (
            kind.decode(),
            frozen,
            deadline_ms + offset_ms if deadline_ms >= 0 else None,
        )
    return keyspace


Compare = Callable[[CommandSequence], Disagreement | None]
PLAIN_ARGUMENTS = (b"a", b"1")


class _Search:
    """The best sequence so far, and how many comparisons may still be made."""

    def __init__(self, found: Disagreement, compare: Compare, attempts: int) -> None:
        self.best = found
        self._compare = compare
        self._found = found
        self.attempts_left = attempts

    def accepts(self, sequence: CommandSequence) -> bool:
        """Whether ``sequence`` shows the disagreement too; it is then the best."""
        if self.attempts_left <= 0:
            return False
        self.attempts_left -= 1
        seen = self._compare(sequence)
        if seen is None or (seen.command, seen.kind) != (self._found.command, self._found.kind):
            return False
        self.best = seen
        return True

    def accepts_steps(self, steps: tuple[Step, ...]) -> bool:
        """The same for other steps under the same settings."""
        return self.accepts(replace(self.best.sequence, steps=steps))

    def leave_out_steps(self) -> None:
        """Leave out half of the steps, a quarter, ..., single ones."""
        size = max(1, len(self.best.sequence.steps) // 2)
        while size:
            start = 0
            while start < len(self.best.sequence.steps):
                steps = self.best.sequence.steps
                if not self.accepts_steps(steps[:start] + steps[start + size :]):
                    start += size
            size //= 2

    def simplify_arguments(self) -> None:
        """Leave out arguments, and put plain ones in the place of others."""
        for index in range(len(self.best.sequence.steps)):
            while index < len(self.best.sequence.steps) and self._simplify(index):
                pass

    def _simplify(self, index: int) -> bool:
        steps = self.best.sequence.steps
        step = steps[index]
        if isinstance(step, int):
            return False
        return any(self.accepts_steps((*steps[:index], plainer, *steps[index + 1 :])) for plainer in _plainer(step))


def shrink(found: Disagreement, compare: Compare, attempts_max: int = 3000) -> Disagreement:
    """A disagreement on the same command with as few steps and arguments as could be found.

    ``compare`` must be repeatable. Stops after ``attempts_max`` comparisons with the best so far.
    """
    search = _Search(_out_of_transaction(found, compare), compare, attempts_max)
    found = search.best
    if not search.accepts_steps(found.sequence.steps[: found.index + 1]):
        return found
    search.accepts(replace(search.best.sequence, resp=2, has_small_encodings=False))
    size = -1
    while size != (size := sum(map(_size, search.best.sequence.steps))) and search.attempts_left:
        search.leave_out_steps()
        search.simplify_arguments()
    return search.best


def _out_of_transaction(found: Disagreement, compare: Compare) -> Disagreement:
    """What EXEC shows, shown by the queued command itself; the disagreement as it is where that shows nothing."""
    steps = found.sequence.steps[: found.index + 1]
    alone = tuple(step for step in steps if isinstance(step, int) or step[0].upper() not in (b"MULTI", b"EXEC"))
    return (compare(replace(found.sequence, steps=alone)) if len(alone) < len(steps) else None) or found


def _size(step: Step) -> int:
    return 1 if isinstance(step, int) else 1 + sum(1 + len(argument) for argument in step)


def _plainer(argv: Argv) -> Iterator[Argv]:
    if argv[0][:2].lower() in (b"bl", b"br", b"bz"):
        return  # another timeout might really wait
    for at in range(1, len(argv)):
        yield argv[:at] + argv[at + 1 :]
    for at in range(1, len(argv)):
        lines = argv[at].splitlines(keepends=True)
        for line in range(len(lines) if len(lines) > 1 else 0):  # a script: leave out one of its lines
            yield (*argv[:at], b"".join(lines[:line] + lines[line + 1 :]), *argv[at + 1 :])
        for word in PLAIN_ARGUMENTS:
            if argv[at] not in PLAIN_ARGUMENTS and len(argv[at]) >= len(word):
                yield (*argv[:at], word, *argv[at + 1 :])


def render(found: Disagreement) -> str:
    """The disagreement as lines that can be typed into ``redis-cli``, and what each side said to the last one."""
    lines = []
    if found.sequence.resp == 3:
        lines.append("HELLO 3")
    if found.sequence.has_small_encodings:
        lines.append("(with the small encoding limits of tests/laboratory/conformance/sequences.py)")
    for step in found.sequence.steps:
        lines.append(f"({step} ms pass)" if isinstance(step, int) else " ".join(map(quote, step)))
    return "\n".join([*lines, f"-> {found.what}"])


def quote(argument: bytes) -> str:
    """An argument as ``redis-cli`` reads it."""
    if argument and all(33 <= byte < 127 and byte not in b"\"'\\" for byte in argument):
        return argument.decode()
    shown = {b'"'[0]: '\\"', b"\\"[0]: "\\\\", 10: "\\n", 13: "\\r"}
    text = "".join(shown.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in argument)
    return f'"{text}"'
