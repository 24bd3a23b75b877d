"""What can be said of scripts before anybody has said what they should do: laws that need no contract.

Verified, in the runs that are counted: that a call which an error stops leaves the keys as before or as after
(``all-or-nothing``; what a second try puts right is no violation), that a call touches one slot (``one-slot``), that
its commands, their arguments and Lua's instructions do not grow in number with what is stored (``bounded``), that
scripts agree on the type of a key (``types``), that no key loses its deadline but by DEL or PERSIST (``deadlines``),
and that what says so writes nothing (``read-only``). Not verified: whether any reply is right.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orderlab.model.errors import InputError
from orderlab.model.verdict import Outcome
from orderlab.properties.draft.facts import Facts
from orderlab.properties.draft.probing import (
    LASTING_MS,
    Bench,
    Foreign,
    ProbeCall,
    Probed,
    ProbeRun,
    probed,
    renewed,
    shape_of,
    source_run,
    variants,
)
from orderlab.sim.redis.backends import Backend, KernelBackend
from orderlab.sim.redis.error_conditions import WRONG_TYPE_FOUND, foreign_type, strikes
from orderlab.sim.redis.hash_slots import hash_slot
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.shard import Effect, FrozenKeyspace
from orderlab.sim.redis.versions import DEFAULT, ServerVersion
from orderlab.sim.stores.binding.lua_text import pages_in, with_pages

LAWS: Mapping[str, str] = {
    "all-or-nothing": "A call that an error stops leaves the keys as before or as after, or a second try completes it.",
    "one-slot": "All keys that a call touches lie in one slot.",
    "bounded": "The commands and Lua instructions of a call do not grow with what is stored, and every call ends.",
    "types": "No script finds a value of another type that scripts of the same store have put there.",
    "deadlines": "A key that has a deadline keeps one, unless it is deleted or PERSIST takes it off.",
    "read-only": "A script that says that it writes nothing writes nothing.",
}
RUNS_MAX, STATES_MAX, DEPTH_MAX, TOLD_MAX = 1500, 120, 4, 4
"""Of one store at the quick effort; replies whose values are tried as arguments."""
ROUNDS = (8, 16, 32)
"""Calls of each script after which the work of one call is counted."""
INSTRUCTIONS_PER_THING = 2
"""Of Lua: what a loop takes at least for each thing that it goes through."""
PAGE_MAX, SMALL_PAGE = 500, 100
"""Past larger pages nothing is counted, but past a small one that stands in their place."""
DELETING = frozenset((b"del", b"unlink", b"getdel", b"persist", b"rename", b"restore", b"copy", b"renamenx"))
COUNTING = frozenset((b"incr", b"incrby", b"hincrby"))
"""Commands that take the next number."""
WRONG_TYPE = "WRONGTYPE"
UNREADABLE_ARGUMENT = ("nonexistent global", "Wrong number of args", "arguments must be strings or integers")
"""In errors that arguments which were only tried may be to blame for, besides those of commands that take one."""


ProbeStep = ProbeCall | tuple[bytes, ...] | int
"""A call of a script; a command of a client's own; milliseconds that pass."""


@dataclass(frozen=True)
class Breach:
    """A law broken by one call, with the calls that lead there."""

    law: str
    headline: str
    calls: tuple[ProbeStep, ...]
    """From the empty store."""
    run: ProbeRun
    effect: Effect | None = None
    """The command that it is about."""
    foreign: Foreign | None = None
    """The key that held a foreign value meanwhile."""
    growth: tuple[ProbeRun, ...] = ()
    """Calls of one script from ever more that is stored, the last of which is ``run``."""
    confirmation: str = ""


@dataclass
class FirstVerdict:
    """What laws without a contract say of scripts."""

    probes: Sequence[Probed]
    version: ServerVersion
    runs: int = 0
    states: int = 0
    tested: Counter[str] = field(default_factory=Counter)
    violations: list[Breach] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def outcome_of(self, law: str) -> Outcome:
        """Of one law."""
        if any(probe.law == law for probe in self.violations):
            return Outcome.VIOLATED
        return Outcome.HOLDS if self.tested[law] and not self.not_run else Outcome.UNKNOWN

    @property
    def outcome(self) -> Outcome:
        """Of the whole: never that all holds, as what the scripts should do was not judged."""
        return Outcome.VIOLATED if self.violations else Outcome.UNKNOWN

    @property
    def not_run(self) -> list[Probed]:
        """Scripts that came to their end with no arguments that were tried."""
        return [probe for probe in self.probes if not probe.is_run]


def first_verdict(
    facts: Sequence[Facts],
    effort: float = 1.0,
    read_only: Collection[str] = (),
    server: Backend | None = None,
    version: ServerVersion = DEFAULT,
) -> FirstVerdict:
    """Judge scripts on a server of ``version``. ``read_only``: those that a binding or a caller says write nothing, by
    name."""
    bench = Bench(KernelBackend(version=version))
    verdict = FirstVerdict(probed(facts, bench), version)
    judge = Examination(verdict, bench, frozenset(read_only), max(200, int(RUNS_MAX * effort)), server)
    judge.explore()
    judge.grow()
    verdict.runs = bench.runs
    return verdict


def runs_told(verdict: FirstVerdict) -> dict[str, str]:
    """What runs have shown of each script, for a comment, by its name."""
    lines = {}
    for probe in verdict.probes:
        if not probe.is_run or probe.best is None:
            lines[probe.facts.label] = f"not run: {' '.join(probe.why_not.split())[:160]}"
            continue
        text = f"run as {probe.best.call.told[:160]}: replies {' or '.join(sorted(probe.replies)) or 'nothing'}"
        if probe.batch_max is not None:
            place, most = probe.batch_max
            text += f"; ARGV[{place + 1}] with {most} items works, with {most * 10} it fails"
        lines[probe.facts.label] = " ".join(text.split())
    return lines


@dataclass
class StoredState:
    """What the calls of a path have left, and when."""

    keyspace: FrozenKeyspace
    now_ms: int
    calls: tuple[ProbeStep, ...] = ()


@dataclass
class Examination:
    """Runs, each held against every law; what breaks one goes to ``verdict``."""

    verdict: FirstVerdict
    bench: Bench
    read_only: frozenset[str]
    runs_max: int
    server: Backend | None
    kept: list[FrozenKeyspace] = field(default_factory=list)
    told: dict[bytes, None] = field(default_factory=dict)
    """Values of replies and of keys, which callers may hand back."""
    stopped: set[tuple[str, int | None, bytes]] = field(default_factory=set)
    """Script, line and command before which an error was tried."""

    def explore(self) -> None:
        """Every call from every state that calls lead to, the nearest first, until the runs are used up."""
        first = StoredState({}, self.bench.backend.now_ms)
        self._follow(deque([first]), {_key(first)})
        if seeds := list(self._seeds(first.now_ms)):
            self._follow(deque(seeds), {_key(probe) for probe in seeds})

    def _seeds(self, now_ms: int) -> Iterator[StoredState]:
        """Texts under keys that no script of the store puts one under, as a client does by SET: those that callers
        pass, so that who compares them finds them."""
        for probe in self.verdict.probes:
            for place, slot in enumerate(probe.facts.keys):
                if (
                    probe.best is None
                    or "string" not in slot.types
                    or any(probe.keys[place] in state for state in self.kept)
                ):
                    continue
                texts = [value for value in probe.best.call.arguments if not value.isdigit()]
                for value in texts[:2] or probe.best.call.arguments[:1]:
                    command = (b"SET", probe.keys[place], value, b"PX", b"%d" % LASTING_MS)
                    held: FrozenKeyspace = {probe.keys[place]: ("string", value, now_ms + LASTING_MS)}
                    yield StoredState(held, now_ms, (command,))

    def _follow(self, waiting: deque[StoredState], seen: set[object]) -> None:
        while waiting and self.bench.runs < self.runs_max:
            state = waiting.popleft()
            for after in self._steps(state):
                if len(after.calls) <= DEPTH_MAX and len(seen) < STATES_MAX and _key(after) not in seen:
                    seen.add(_key(after))
                    self.kept.append(after.keyspace)
                    waiting.append(after)
        self.verdict.states += len(seen)

    def _steps(self, state: StoredState) -> Iterator[StoredState]:
        deadlines = [until for _, _, until in state.keyspace.values() if until]
        for probe in self.verdict.probes:
            if probe.best is not None and probe.best.is_endless:
                self._ends(probe.best, StoredState(probe.best.before, probe.best.now_ms))
                continue  # each of its calls takes as long as a script may
            values = tuple(self.told)[-TOLD_MAX:]
            for call in variants(probe, values, state.now_ms, len(state.calls)):
                try:
                    run = self.bench.run(call, state.keyspace, state.now_ms)
                except InputError:
                    continue
                probe.replies.add(shape_of(run.reply))
                for place, key in enumerate(run.call.keys):
                    if key in run.after:
                        probe.types.setdefault(place, set()).add(run.after[key][0])
                self._note(run)
                self.judge(probe, run, state)
                if not run.error and run.after != state.keyspace:
                    yield StoredState(run.after, state.now_ms, (*state.calls, call))
        if deadlines:
            ms = min(deadlines) - state.now_ms + 1
            yield StoredState(state.keyspace, state.now_ms + ms, (*state.calls, ms))

    def _note(self, run: ProbeRun) -> None:
        reply = run.reply if isinstance(run.reply, list) else [run.reply]
        for value in reply:
            if (isinstance(value, bytes) and 0 < len(value) <= 80) or type(value) is int:
                self.told.setdefault(value if isinstance(value, bytes) else b"%d" % value)

    def judge(self, probe: Probed, run: ProbeRun, state: StoredState) -> None:
        """Hold one run against every law."""
        self.look_at(probe, run, state)
        if not run.error:
            self._foreign_values(run, state)

    def look_at(self, probe: Probed, run: ProbeRun, state: StoredState) -> None:
        """What one run shows by itself."""
        self._ends(run, state)
        self._slots(run, state)
        self._deadlines(run, state)
        self._reads(probe, run, state)
        self._types(run, state)
        if run.error:
            self._own_error(probe, run, state)

    def _break(
        self,
        law: str,
        headline: str,
        state: StoredState,
        run: ProbeRun,
        effect: Effect | None = None,
        foreign: Foreign | None = None,
        growth: Sequence[ProbeRun] = (),
    ) -> None:
        """Tell a violation; of those of one law on one line the first, which is the shortest."""
        line = effect.line if effect is not None else None
        for other in self.verdict.violations:
            at = other.effect.line if other.effect is not None else None
            is_alike = at == line or (foreign is not None and other.foreign is not None)
            if other.law == law and other.run.call.name == run.call.name and is_alike:
                return
        breach = Breach(law, headline, (*state.calls, run.call), run, effect, foreign, tuple(growth))
        self.verdict.violations.append(replace(breach, confirmation=confirmed(breach, self.server)))

    def _ends(self, run: ProbeRun, state: StoredState) -> None:
        if run.is_endless:
            self._break("bounded", f"{run.call.name} does not end: {run.error}", state, run, _last(run))

    def _slots(self, run: ProbeRun, state: StoredState) -> None:
        if not run.call.keys:
            return
        self.verdict.tested["one-slot"] += 1
        slot = hash_slot(run.call.keys[0])
        for effect in run.effects:
            for key in effect.keys:
                if hash_slot(key) == slot:
                    continue
                given = [value for value in run.call.arguments if value and value in key]
                if given:
                    self.verdict.remarks += [
                        f"one-slot is not judged of {_named(key)}, which {run.call.name} makes of an argument: "
                        "callers must see to its hash tag"
                    ] * (not any(run.call.name in probe and "one-slot" in probe for probe in self.verdict.remarks))
                else:
                    text = f"{run.call.name} touches {_named(key)}, which may lie on another node than its KEYS"
                    self._break("one-slot", text, state, run, effect)

    def _deadlines(self, run: ProbeRun, state: StoredState) -> None:
        for key, (_, _, until) in run.before.items():
            if until is None or until < run.now_ms or key not in run.after:
                continue
            self.verdict.tested["deadlines"] += 1
            touching = [effect for effect in run.effects if key in effect.changed]
            if run.after[key][2] is None and not any(each.argv[0].lower() in DELETING for each in touching):
                text = f"{_named(key)} had a deadline, and has none any more: it stays for ever"
                self._break("deadlines", text, state, run, touching[-1] if touching else None)

    def _reads(self, probe: Probed, run: ProbeRun, state: StoredState) -> None:
        if not probe.facts.promises_no_writes and run.call.name not in self.read_only:
            return
        self.verdict.tested["read-only"] += 1
        writes = [effect for effect in run.effects if effect.changes or effect.is_write]
        if writes or "read-only script" in run.error:
            text = f"{run.call.name} says that it only reads, and writes"
            self._break("read-only", text, state, run, writes[0] if writes else None)

    def _types(self, run: ProbeRun, state: StoredState) -> None:
        if run.before:
            self.verdict.tested["types"] += 1
        wrong = next(
            (each for each in run.effects if isinstance(each.reply, ErrorReply) and WRONG_TYPE in str(each.reply)), None
        )
        if wrong is not None and wrong.keys:
            kind = run.before.get(wrong.keys[0], run.after.get(wrong.keys[0], ("?",)))[0]
            text = (
                f"{_command(wrong)} finds a {kind} under {_named(wrong.keys[0])}, which this store's scripts put there"
            )
            self._break("types", text, state, run, wrong)

    # -- all or nothing ------------------------------------------------------------------------------------------------

    def _own_error(self, probe: Probed, run: ProbeRun, state: StoredState) -> None:
        """An error of the script's own, after it has written. Arguments that never work tell nothing."""
        wrote = [effect for effect in run.effects if effect.changes]
        is_known = probe.is_run and probe.best is not None and _same_kind(run.call, probe.best.call)
        if not wrote or not is_known or run.is_endless or any(word in run.error for word in UNREADABLE_ARGUMENT):
            return
        last = run.effects[-1]
        if isinstance(last.reply, ErrorReply) and {*last.argv[2:]} & {*run.call.arguments}:
            return  # the argument may be what no caller would pass
        self.verdict.tested["all-or-nothing"] += 1
        again = self.bench.run(run.call, run.after, run.now_ms)
        if run.after == run.before or not again.error:
            return
        text = f"{run.call.name} fails after {_command(wrote[-1])} has written: {_first_words(run.error)}"
        self._break("all-or-nothing", text, state, run, wrote[-1])

    def _foreign_values(self, run: ProbeRun, state: StoredState) -> None:
        """A value of another type under a key that is looked at after the first write."""
        first = next((number for number, effect in enumerate(run.effects) if effect.changes), None)
        if first is None:
            return
        self.verdict.tested["all-or-nothing"] += 1
        for number in range(first + 1, len(run.effects)):
            effect = run.effects[number]
            earlier = {key for each in run.effects[:number] for key in each.keys}
            mark = (run.call.name, effect.line, effect.argv[0].lower())
            if len(effect.keys) != 1 or effect.keys[0] in earlier or mark in self.stopped:
                continue
            if effect.keys[0] in run.before or not strikes(WRONG_TYPE_FOUND, effect.argv, wrote=True):
                continue
            self.stopped.add(mark)
            self.stop_at(run, state, effect)

    def stop_at(self, run: ProbeRun, state: StoredState, effect: Effect) -> None:
        """A value of another type under the key of a command of ``run``."""
        key = effect.keys[0]
        foreign = Foreign(key, foreign_type([effect.argv[0].lower()]))
        stopped = self.bench.run(run.call, run.before, run.now_ms, foreign)
        left = {name: value for name, value in stopped.after.items() if name != key}
        if WRONG_TYPE not in stopped.error or left == run.before:
            return
        again = self.bench.run(run.call, left, run.now_ms)
        if again.after == run.after and again.reply == run.reply:
            return
        wrote = [each for each in stopped.effects if each.changes]
        if not again.error and all(_is_name_taken(each, run) for each in wrote):
            return
        text = (
            f"{_command(wrote[-1])} has written when {_command(effect)} finds a value of another type under "
            f"{_named(key)}: what was written stays, and a second try does not put it right"
        )
        self._break("all-or-nothing", text, state, stopped, wrote[-1], foreign)

    # -- growth --------------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """Call each script many times under names of their own, and count the work of one call. What seems to grow is
        counted once more past the largest page that a script names: what ends there is bounded."""
        probes = [probe for probe in self.verdict.probes if probe.is_run]
        self.verdict.tested["bounded"] += len(probes)
        suspects = [runs for runs in self._counted(probes, ROUNDS) if growing(runs)]
        pages = pages_in({runs[0].call.script.source for runs in suspects})
        past = max((page for page in pages if page <= PAGE_MAX), default=0)
        rounds = tuple(past + number for number in ROUNDS)
        if suspects and past:
            names = {runs[0].call.name for runs in suspects}
            suspects = [runs for runs in self._counted(probes, rounds) if runs[0].call.name in names]
        for runs in suspects:
            if self._ends_at_a_page(runs, probes):
                continue
            self.compare(runs, f"after {', '.join(map(str, rounds))} rounds")

    def _ends_at_a_page(self, runs: Sequence[ProbeRun], probes: Sequence[Probed]) -> bool:
        """Whether a script that names a page too large to fill here grows no more past a small one in its place."""
        script = runs[0].call.script
        shorter = with_pages(script.source, PAGE_MAX, SMALL_PAGE)
        if shorter == script.source:
            return False
        changed = []
        for probe in probes:
            if probe.best is not None and probe.best.call.script is script:
                call = probe.best.call._replace(script=replace(script, source=shorter))
                probe = replace(probe, best=replace(probe.best, call=call))
            changed.append(probe)
        again = self._counted(changed, tuple(SMALL_PAGE + number for number in ROUNDS))
        return not any(growing(each) for each in again if each[0].call.name == runs[0].call.name)

    def compare(self, runs: Sequence[ProbeRun], when: str = "as more is stored") -> None:
        """Hold calls of one script from ever more that is stored against each other."""
        if (growth := growing(runs)) is None:
            return
        what, numbers = growth
        run = runs[-1]
        common = Counter(each.line for each in run.effects).most_common(1)
        effect = next((each for each in run.effects if each.line == common[0][0]), None)
        text = f"a call of {run.call.name} {what} {numbers} {when}"
        self._break("bounded", text, StoredState(run.before, run.now_ms), run, effect, growth=runs)

    def _counted(self, probes: Sequence[Probed], rounds: tuple[int, ...]) -> list[list[ProbeRun]]:
        """A call of each script after so many rounds of calls."""
        state: FrozenKeyspace = {}
        now_ms = self.bench.backend.now_ms
        runs: dict[str, list[ProbeRun]] = {}
        for number in range(1, rounds[-1] + 1):
            for probe in probes:
                call = renewed(probe, number, now_ms)
                if call is None:
                    continue
                try:
                    run = (self.bench.counted if number in rounds else self.bench.run)(call, state, now_ms)
                except InputError:
                    continue
                if number in rounds:
                    runs.setdefault(probe.facts.label, []).append(run)
                if not run.error and probe.facts.writes and not _removes_only(run):
                    state = run.after
        return [each for each in runs.values() if len(each) == len(rounds)]


def growing(runs: Sequence[ProbeRun]) -> tuple[str, str] | None:
    """What of the work of a call grows with what is stored, in words, and how much there was."""
    series = {
        "makes commands in number": ([len(run.effects) for run in runs], 0.5),
        "hands commands arguments in number": ([sum(len(each.argv) for each in run.effects) for run in runs], 0.5),
        "takes Lua instructions in number": ([run.instructions for run in runs], INSTRUCTIONS_PER_THING),
    }
    for what, ((few, more, most), each) in series.items():
        if more >= few + ROUNDS[0] * each and most >= more + ROUNDS[1] * each:
            return what.removesuffix(" in number"), f"({few}, {more}, {most} of them)"
    return None


def _is_name_taken(effect: Effect, run: ProbeRun) -> bool:
    """Whether a command takes the next number and later ones are given it: one that is passed over does no harm."""
    later = run.effects[next((at for at, each in enumerate(run.effects) if each.argv == effect.argv), 0) + 1 :]
    number = str(effect.reply).encode()
    return effect.argv[0].lower() in COUNTING and any(number in each.argv[2:] for each in later)


def _removes_only(run: ProbeRun) -> bool:
    return len(run.after) < len(run.before)


def _same_kind(call: ProbeCall, best: ProbeCall) -> bool:
    """Whether the arguments are of the kinds with which the script has run to its end."""
    return len(call.arguments) == len(best.arguments) and all(
        probe.isdigit() == other.isdigit() and _is_json(probe) == _is_json(other)
        for probe, other in zip(call.arguments, best.arguments, strict=True)
    )


def _is_json(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict | list)
    except (ValueError, RecursionError):
        return False


def confirmed(violation: Breach, server: Backend | None) -> str:
    """Whether the last call replies the same on a real server; nothing without one, or where time must pass."""
    is_short = len(violation.calls) > 1 or not violation.run.before
    if server is None or not is_short or violation.run.is_endless:
        return ""
    server.flush()
    reply = None
    for call in violation.calls:
        if isinstance(call, int):
            server.flush()
            return ""
        if not isinstance(call, ProbeCall):
            server.execute(*call)
            continue
        is_last = call is violation.calls[-1]
        if is_last and violation.foreign is not None:
            key, kind = violation.foreign
            server.execute(b"SET" if kind == "string" else b"RPUSH", key, b"planted")
        if call.function:
            server.execute(b"FUNCTION", b"LOAD", b"REPLACE", source_run(call.script))
        reply = server.execute(*call.argv)
    server.flush()
    known = violation.run.reply
    same = shape_of(reply) == shape_of(known) and (not isinstance(known, bytes | int) or known == reply)
    return f"confirmed on {server.describe()}" if same else f"not confirmed on {server.describe()}"


def _key(state: StoredState) -> object:
    return frozenset(state.keyspace.items()), state.now_ms


def _last(run: ProbeRun) -> Effect | None:
    return run.effects[-1] if run.effects else None


def _named(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


def _command(effect: Effect) -> str:
    return b" ".join(effect.argv[:2]).decode("utf-8", "backslashreplace")[:80]


def _first_words(error: str) -> str:
    return error.partition(" script: ")[0][:160]
