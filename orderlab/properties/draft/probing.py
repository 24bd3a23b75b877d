"""Scripts that nobody has bound yet, run on the kernel with arguments that they might be given.

What an argument means is guessed from the name that the script gives it and from what its text does with it; what makes
a script run to its end and write is kept. A guess decides no verdict by itself: what runs with it is a call that the
script takes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import NamedTuple

from orderlab.model.errors import InputError
from orderlab.properties.draft.callers import name_of_shape
from orderlab.properties.draft.facts import DURATION_S, MOMENT_MS, MOMENT_S, Facts, Slot
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.redis.conditions import ScriptTimeout
from orderlab.sim.redis.error_conditions import WRONG_TYPE_FOUND
from orderlab.sim.redis.replies import ErrorReply, Reply
from orderlab.sim.redis.shard import Effect, FrozenKeyspace
from orderlab.sim.stores.binding.results import Script

DURATION = re.compile(r"ttl|expir|lease|timeout|duration|window|interval|period|\bpx\b|delay|milli|^ms$|_ms$|seconds?$")
MOMENT = re.compile(r"now|timestamp|^ts$|current|_at$|time$|date")
COUNT = re.compile(r"limit|max|count|batch|size|number|^n$|capacity|rate|burst|cost|permit|quota|tokens|amount|cursor")
"""What numbers are, by the names that scripts give them, in small letters."""
LASTING_MS, COUNTED = 5000, 3
TURNS = 3
"""Times that each argument is tried again, as what one means may depend on another."""
PAIRS_MAX = 400
"""Pairs of values of two arguments that are tried where no single one does."""
MORE_KEYS = ("more1", "more2")
"""Keys beyond those that the text names, likewise."""
MORE_ARGUMENTS = 4
"""Arguments beyond those that the text names, for scripts that read as many as they are given."""


class ProbeCall(NamedTuple):
    """One call of a script."""

    script: Script
    keys: tuple[bytes, ...]
    arguments: tuple[bytes, ...]
    function: str = ""
    """Of a library, which the script is then."""

    @property
    def name(self) -> str:
        """What is called."""
        return self.function or self.script.name

    @property
    def argv(self) -> tuple[bytes, ...]:
        """The command of a client; of a function once its library is loaded."""
        what = (b"FCALL", self.function.encode()) if self.function else (b"EVAL", source_run(self.script))
        return (*what, b"%d" % len(self.keys), *self.keys, *self.arguments)

    @property
    def told(self) -> str:
        """The call in words."""
        keys, arguments = (", ".join(map(_shown, part)) for part in (self.keys, self.arguments))
        return f"{self.name}({'; '.join(part for part in (keys, arguments) if part)})"


_OF_VALKEY = re.compile(rb"\bserver\s*\.\s*(?:p?call|register_function|\w+_reply)\b")


def source_run(script: Script) -> bytes:
    """The text that runs: where it names Valkey's ``server``, that is what a Redis calls ``redis``. Lines stay."""
    source = script.source
    if not _OF_VALKEY.search(source):
        return source
    head, newline, rest = source.partition(b"\n") if source.startswith(b"#!") else (b"", b"", source)
    return head + newline + b"local server = redis; " + rest


class Foreign(NamedTuple):
    """A value of another type than a script expects, under one of its keys."""

    key: bytes
    type: str


@dataclass(frozen=True)
class ProbeRun:
    """One call from one state, and what came of it."""

    call: ProbeCall
    before: FrozenKeyspace
    now_ms: int
    effects: tuple[Effect, ...]
    """Of the calls that the script made."""
    reply: Reply
    after: FrozenKeyspace
    error: str = ""
    is_endless: bool = False
    instructions: int = 0
    """Of Lua, where they were counted."""

    @property
    def score(self) -> tuple[bool, int, int, int]:
        """How far it came: to its end, by how many lines, with how many changes."""
        lines = {effect.line for effect in self.effects}
        return not self.error, len(lines), sum(bool(effect.changes) for effect in self.effects), len(self.effects)


@dataclass
class Bench:
    """A kernel that carries single calls out from any state."""

    backend: KernelBackend = field(default_factory=KernelBackend)
    runs: int = 0
    loaded: bytes = b""
    """The library that was loaded last."""

    def _load(self, call: ProbeCall) -> None:
        library = source_run(call.script) if call.function else self.loaded
        if library != self.loaded:
            self.backend.execute(b"FUNCTION", b"FLUSH")
            reply = self.backend.execute(b"FUNCTION", b"LOAD", library)
            if isinstance(reply, ErrorReply):
                raise InputError(reply.message.decode("utf-8", "replace"))
            self.loaded = library

    def counted(self, call: ProbeCall, before: FrozenKeyspace, now_ms: int) -> ProbeRun:
        """What a call does, with the Lua instructions that it takes. Raises as ``run``."""
        with self.backend.measuring() as work:
            run = self.run(call, before, now_ms)
            instructions, _ = work()
        return replace(run, instructions=instructions)

    def run(self, call: ProbeCall, before: FrozenKeyspace, now_ms: int, foreign: Foreign | None = None) -> ProbeRun:
        """What a call does; with ``foreign`` that key holds a value of another type meanwhile.

        Raises InputError for what the kernel lacks."""
        backend, effects = self.backend, list[Effect]()
        self.runs += 1
        self._load(call)
        backend.set_now(now_ms)
        backend.load(before)
        argv = call.argv
        reply: Reply = None
        error, is_endless = "", False
        try:
            with backend.noting(effects):
                if foreign is None:
                    reply = backend.execute(*argv)
                else:
                    with backend.imposed(WRONG_TYPE_FOUND, key=foreign.key, found=foreign.type):
                        reply = backend.execute(*argv)
        except ScriptTimeout as stopped:
            error, is_endless = str(stopped), True
        if isinstance(reply, ErrorReply):
            error = reply.message.decode("utf-8", "replace")
        inner = tuple(effect for effect in effects if effect.line is not None)
        return ProbeRun(call, before, now_ms, inner, reply, backend.keyspace(), error, is_endless)


@dataclass
class Probed:
    """What runs of one script have shown."""

    facts: Facts
    keys: tuple[bytes, ...]
    best: ProbeRun | None = None
    """That with the arguments it comes furthest with; None where the kernel cannot run it."""
    why_not: str = ""
    replies: set[str] = field(default_factory=set)
    """Shapes that were seen."""
    types: dict[int, set[str]] = field(default_factory=dict)
    """Place in KEYS, from 0 -> types that were found under the key after a run."""
    batch_max: tuple[int, int] | None = None
    """Place of an argument that holds a batch, and the largest that was carried out where a larger one was not."""

    @property
    def is_run(self) -> bool:
        """Whether it came to its end with some arguments."""
        return self.best is not None and not self.best.error


def key_names(facts: Sequence[Facts]) -> list[list[str]]:
    """What each script's keys are called. Keys that programs spell alike are one key, whatever scripts call them; of
    others, those of one name and of types that go together."""
    by_shape = _names_of_shapes(facts)
    types: dict[str, list[tuple[set[str], str]]] = {}
    for shape, name in by_shape.items():
        alike = [slot for probe in facts for slot in probe.keys if slot.shape == shape]
        types[name] = [(set().union(*(slot.types for slot in alike)), name)]
    results = []
    for probe in facts:
        names = []
        for slot in probe.keys:
            if slot.shape:
                names.append(by_shape[slot.shape])
                continue
            groups = types.setdefault(slot.name, [])
            for number, (known, name_told) in enumerate(groups):
                if name_told not in names and (not known or not slot.types or known & slot.types):
                    groups[number] = (known | slot.types, name_told)
                    names.append(name_told)
                    break
            else:
                name_told = slot.name
                if groups:
                    name_told += "_" + re.sub(r"[^A-Za-z0-9]+", "_", _stem(probe.script))
                if name_told in names:
                    name_told += f"_{len(names) + 1}"
                groups.append((set(slot.types), name_told))
                names.append(name_told)
        results.append(names)
    return results


def shared_names(facts: Sequence[Facts]) -> set[str]:
    """What more than one of a script's keys is called, where no program spells them: it tells no key."""
    return {
        name
        for probe in facts
        for name, count in Counter(slot.name for slot in probe.keys if not slot.shape).items()
        if count > 1
    }


def _names_of_shapes(facts: Sequence[Facts]) -> dict[str, str]:
    """How programs spell keys -> what these are called: by the last word of it, else as a script calls them, else by
    the first word; no two alike."""
    by_shape: dict[str, str] = {}
    for shape in dict.fromkeys(slot.shape for probe in facts for slot in probe.keys if slot.shape):
        alike = [slot.name for probe in facts for slot in probe.keys if slot.shape == shape and slot.is_named]
        words = re.findall(r"[A-Za-z]\w*", shape)
        names = [name_of_shape(shape), *alike, *words[::-1], "_".join(words)]
        free = [name for name in names if name and name not in by_shape.values()]
        by_shape[shape] = free[0] if free else f"{names[-1]}{len(by_shape) + 1}"
    return by_shape


def probed(facts: Sequence[Facts], bench: Bench) -> list[Probed]:
    """Each script with the arguments that it comes furthest with: from the empty store, then from what others left."""
    results = [
        Probed(probe, tuple(b"{store}:" + name.encode() for name in [*names, *MORE_KEYS * probe.has_more_keys]))
        for probe, names in zip(facts, key_names(facts), strict=True)
    ]
    for probe in results:
        if probe.facts.is_library:
            probe.why_not = "a library of functions whose names its text does not tell"
            continue
        _climb(probe, bench, {})
    left = [probe.best.after for probe in results if probe.best is not None and probe.best.after]
    for probe in results:
        for state in left:
            if probe.best is not None and probe.best.error and not probe.best.is_endless:
                _climb(probe, bench, state)
    for probe in results:
        if probe.is_run:
            probe.batch_max = _largest_batch(probe, bench)
    return results


def _climb(probe: Probed, bench: Bench, state: FrozenKeyspace) -> None:
    """Change one argument after the other for what brings the script further."""
    now_ms = bench.backend.now_ms if probe.best is None else probe.best.now_ms
    options = [choices(slot, now_ms) for slot in probe.facts.arguments]
    if probe.facts.has_more_arguments:
        options += [[b"a%d" % number, b"1", b"%d" % now_ms] for number in range(1, MORE_ARGUMENTS + 1)]
    begins = [[each[0] for each in options], [next(filter(_is_number, each), each[0]) for each in options]]
    begins = begins[: 1 + (begins[0] != begins[1])]
    if probe.best is not None:
        begins = [list(probe.best.call.arguments)]
    try:
        tries: list[ProbeRun] = []
        for each in begins:
            if not tries or not tries[0].is_endless:  # such a run takes as long as hundreds of others
                call = ProbeCall(probe.facts.script, probe.keys, tuple(each), probe.facts.function)
                tries.append(bench.run(call, state, now_ms))
        best = max(tries, key=lambda run: run.score)
        chosen = list(best.call.arguments)
        for _ in range(0 if best.is_endless else TURNS):
            before = best.score
            for place, each in enumerate(options):
                is_number = place < len(probe.facts.arguments) and probe.facts.arguments[place].types == {"number"}
                if is_number and not best.error:
                    continue
                for value in each:
                    tried = [*chosen[:place], value, *chosen[place + 1 :]]
                    run = bench.run(tries[0].call._replace(arguments=tuple(tried)), state, now_ms)
                    if run.score > best.score:
                        best, chosen = run, tried
                    if run.is_endless:
                        break
            if best.score == before:
                break
        if best.error and not best.is_endless:
            best = _with_two(bench, state, best, options)
    except InputError as error:
        probe.why_not = str(error)
        return
    if probe.best is None or best.score > probe.best.score:
        probe.best = best
        probe.why_not = best.error


def _with_two(bench: Bench, state: FrozenKeyspace, best: ProbeRun, options: Sequence[Sequence[bytes]]) -> ProbeRun:
    """What two arguments at once bring where no single one brings the script to its end."""
    chosen, tried = best.call.arguments, 0
    for first, second in combinations(range(len(options)), 2):
        for value, other in product(options[first], options[second]):
            if (tried := tried + 1) > PAIRS_MAX:
                return best
            values = [*chosen]
            values[first], values[second] = value, other
            run = bench.run(best.call._replace(arguments=tuple(values)), state, best.now_ms)
            if not run.error:
                return run
    return best


def _is_number(value: bytes) -> bool:
    return value.isdigit()


def choices(slot: Slot, now_ms: int) -> list[bytes]:
    """What an argument may be, the likeliest first."""
    name = slot.name.lower()
    numbers = [b"%d" % COUNTED, b"1", b"0"]
    if slot.units & {MOMENT_S, MOMENT_MS} or (MOMENT.search(name) and not DURATION.search(name)):
        moments = [b"%d" % now_ms, b"%d" % (now_ms // 1000)]
        numbers = [*(moments[::-1] if MOMENT_S in slot.units else moments), *numbers]
    elif slot.units or DURATION.search(name):
        numbers = [b"%d" % (LASTING_MS // 1000 if DURATION_S in slot.units else LASTING_MS), *numbers]
    elif COUNT.search(name):
        numbers = [b"%d" % COUNTED, *numbers]
    text = [slot.name.encode() + b"1"]
    words = [word.encode() for word in sorted(slot.words)]
    members = {probe: _member(probe, now_ms) for probe in sorted(slot.members)}
    objects = [json.dumps(probe).encode() for probe in (members, [members], ["a", "b"], [])]
    packed = [_packed(probe) for probe in (members, [members], ["a", "b"], [])]
    order = {
        "json": [*objects, *text, *numbers],
        "msgpack": [*packed, *text, *numbers],
        "number": [*numbers, *text],
    }
    kind = next((each for each in ("json", "msgpack", "number") if each in slot.types), "")
    if kind:
        return [*dict.fromkeys((*order[kind], *words))]
    first = numbers if slot.units or DURATION.search(name) or COUNT.search(name) or MOMENT.search(name) else text
    return [*dict.fromkeys((*first, *words, *text, *numbers, *objects[:2], *packed[:1], b""))]


def _member(name: str, now_ms: int) -> object:
    name_told = name.lower()
    if DURATION.search(name_told):
        return LASTING_MS
    if MOMENT.search(name_told):
        return now_ms
    return COUNTED if COUNT.search(name_told) else f"{name}1"


def _packed(value: object) -> bytes:
    """A value as msgpack: what `cmsgpack` of a server packs the same JSON as."""
    bench = KernelBackend()
    reply = bench.execute(b"EVAL", b"return cmsgpack.pack(cjson.decode(ARGV[1]))", b"0", json.dumps(value).encode())
    return bytes(reply) if isinstance(reply, bytes) else b""


def _largest_batch(probe: Probed, bench: Bench) -> tuple[int, int] | None:
    """Where a JSON array is taken: how many items, where more than so many end in an error."""
    assert probe.best is not None
    call = probe.best.call
    for place, value in enumerate(call.arguments[: len(probe.facts.arguments)]):
        if not value.startswith(b"["):
            continue
        items = json.loads(value) or ["a"]
        done = 0
        for count in (1, 10, 100, 1000, 10_000):
            given = [*call.arguments[:place], json.dumps([items[0]] * count).encode(), *call.arguments[place + 1 :]]
            run = bench.run(call._replace(arguments=tuple(given)), probe.best.before, probe.best.now_ms)
            if run.error:
                return (place, done) if done else None
            done = count
    return None


def variants(probe: Probed, name_told: Collection[bytes], now_ms: int, later: int = 0) -> Iterator[ProbeCall]:
    """Calls that are worth trying: with the arguments that it comes furthest with, others of what is read as text, what
    replies told, and words that the script looks for."""
    if probe.best is None:
        return
    call = probe.best.call
    begun_ms = probe.best.now_ms
    base = tuple(_later(value, begun_ms, now_ms) for value in call.arguments)
    yield call._replace(arguments=base)
    for place, value in enumerate(base):
        slot = probe.facts.arguments[place] if place < len(probe.facts.arguments) else Slot("more", False)
        others: Iterable[bytes] = [word.encode() for word in sorted(slot.words)]
        if "number" not in slot.types and not slot.units:
            others = [*others, _renamed(value, later + 2), *name_told]
        for other in dict.fromkeys(others):
            if other != value:
                yield call._replace(arguments=(*base[:place], other, *base[place + 1 :]))


def renewed(probe: Probed, number: int, now_ms: int) -> ProbeCall | None:
    """The call with names that no earlier one had."""
    if probe.best is None:
        return None
    call = probe.best.call
    values = []
    for place, value in enumerate(call.arguments):
        slot = probe.facts.arguments[place] if place < len(probe.facts.arguments) else Slot("more", False)
        is_name = "number" not in slot.types and not slot.units
        value = _later(value, probe.best.now_ms, now_ms)
        values.append(_renamed(value, number) if is_name else value)
    return call._replace(arguments=tuple(values))


def _later(value: bytes, then_ms: int, now_ms: int) -> bytes:
    """A moment as it is by now."""
    if value == b"%d" % then_ms:
        return b"%d" % now_ms
    return b"%d" % (now_ms // 1000) if value == b"%d" % (then_ms // 1000) else value


_NAMED = re.compile(rb"(?<=[A-Za-z_])1(?![0-9A-Za-z])")


def _renamed(value: bytes, number: int) -> bytes:
    """What is named ``x1`` as ``x2``, within JSON too."""
    return _NAMED.sub(b"%d" % number, value) if not _is_packed(value) else value


def _is_packed(value: bytes) -> bool:
    return any(byte >= 0x80 for byte in value[:1])


_DEEPEST = 8
"""Arrays within each other that are told apart."""


def shape_of(reply: Reply, depth: int = 0) -> str:
    """What kind of reply it is, in a few words; ``depth``: within so many arrays."""
    if reply is None:
        return "nil"
    if isinstance(reply, ErrorReply):
        return "error"
    if isinstance(reply, bool | int):
        return "integer"
    if isinstance(reply, list | tuple):
        inner = sorted({shape_of(each, depth + 1) for each in reply}) if depth < _DEEPEST else ["more"]
        return f"array of {' and '.join(inner)}" if inner else "empty array"
    if isinstance(reply, bytes) and type(reply) is bytes:
        try:
            return "JSON" if isinstance(json.loads(reply), dict | list) else "text"
        except (ValueError, RecursionError):
            return "text"
    return "status"


def _stem(script: Script) -> str:
    file, _, inner = script.name.partition("#")
    return inner.split(".")[-1] if inner else file.rpartition("/")[2].removesuffix(".lua")


def _shown(value: bytes) -> str:
    text = value.decode("utf-8", "backslashreplace")
    return json.dumps(text if len(text) <= 60 else f"{text[:60]}...", ensure_ascii=False)
