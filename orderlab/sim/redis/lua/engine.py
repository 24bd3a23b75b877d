"""A Lua state: compiles text, runs functions, and answers what they call in Python.

A server has two such states, one for scripts and one for function libraries; so has the kernel, where shards may share
the first (``shared_lua``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import lupa.lua51 as lupa

from orderlab.sim.redis.conditions import ScriptKilled, ScriptTimeout
from orderlab.sim.redis.lua import watchdog
from orderlab.sim.redis.lua.callables import library_callables
from orderlab.sim.redis.lua.compilation import compile_steps
from orderlab.sim.redis.lua.limits import Limits
from orderlab.sim.redis.lua.number_text import NotText, put_back_point, set_point, texts
from orderlab.sim.redis.lua.outcome import broken, result_of
from orderlab.sim.redis.lua.replies import REPLY_BYTES_MAX, ReplyTooLarge, ReplyWriter
from orderlab.sim.redis.lua.sandbox import (
    ARGUMENT_BYTES,
    CALL_BYTES,
    FEW_ARGUMENTS,
    BytecodeError,
    Direct,
    Sandbox,
    prepare_chunk,
)
from orderlab.sim.redis.lua.script_run import ScriptRun
from orderlab.sim.redis.node_state import GROWTH_MAX_BYTES, UNCOUNTED, NodeState
from orderlab.sim.redis.numbers import shortest_text
from orderlab.sim.redis.registry import find
from orderlab.sim.redis.replies import OK, ErrorReply, RefusedCall, Reply
from orderlab.sim.redis.short_calls import SHORT_WAYS
from orderlab.sim.redis.versions import DEFAULT

ARGUMENTS_IN_REGISTERS_MAX: Final = 3000
"""Keys and arguments that go onto the Lua stack; longer lists go in portions into tables."""
KEYS_IN_REGISTERS_MAX: Final = 100
"""Keys are parameters of a Lua function, which may have 200 local variables."""
ARGUMENT_BYTES_MAX: Final = 8 << 20
"""Keys and arguments beyond this get memory of their own for the run."""
TIME_US_MAX: Final = 1 << 52
"""Before 2112 Lua takes microseconds apart without rounding; after that TIME is a call like any other."""
NUMERIC_MAX: Final = 256
REGISTERED_AT_ONCE: Final = 4000
COMPILED_FREE: Final = 100_000_000
"""Instructions that compiling a client's script may take, however few its run may."""
COMPILED_MAX: Final = 256
"""Scripts that are kept for the next node that loads them."""
REFUSED, UNSENT = b"refused", b"unsent"  # for Lua: errors of calls that are not carried out; the latter is not counted
NO_ARGUMENTS = b"ERR Please specify at least one argument for this redis lib call"
NOT_TEXT = b"ERR Lua redis lib command arguments must be strings or integers"
MANY_ARGUMENTS: Final = 60
UNITS_PER_ARGUMENT: Final = 4
UNITS_PER_ITEM: Final = 10
LONG_REPLY: Final = 4096
BYTES_PER_UNIT: Final = 128
"""Work of a call beyond that of its command."""
CHARGED: Final = 1_000_000
"""Units of work that count as much as a million instructions (``NodeState.charged``)."""
KILLED = b"ERR Script killed by user with SCRIPT KILL..."
_join = b"".join


class CompiledScript:
    """A script that a Lua state has compiled."""

    def __init__(self, function: Any, number: int) -> None:
        self.function = function
        self.number = number
        """What the state knows it by, for as long as ``function`` is held."""


class LuaEngine:
    """One Lua state. It runs one script at a time; not reentrant, as the server's is not."""

    def __init__(self, node: NodeState, limits: Limits, files: tuple[str, ...]) -> None:
        self.node = node
        """The one that runs in it now, or ran last."""
        self.owner: NodeState | None = None
        """The node whose script changed a setting of the state, which lasts: no other may run in it."""
        self.compiled: dict[bytes, CompiledScript] = {}
        """Functions by the SHA1 of the script, for the other shards that load it."""
        self.limits = limits
        self._run: ScriptRun | None = None
        self._is_plain = False
        """Whether nothing but the keyspace concerns the calls of this run: no abort point, slots, record of effects."""
        self._stopped: BaseException | None = None
        """Why the running script may not go on; raised when it has unwound. Lua's calls set it while ``run`` waits."""
        self._argument_bytes_max = limits.argument_bytes_max
        self._argument_bytes_left = 0
        self._work_max = limits.work_max
        self._portions: list[bytes] = []
        self._writer = ReplyWriter()
        self._runners: dict[str, dict[int, Any]] = {"script": {}, "function": {}}
        """By the kind of run and the number of keys."""
        self._is_recording = False
        self._memory_max = limits.memory_bytes_max
        self.sandbox = Sandbox(limits)
        self._memory_used = self.sandbox.memory_used
        commands = {
            name: (command.handler, abs(command.arity), max(command.arity, 0) or sys.maxsize, command.is_write)
            for name, command in node.spellings.items()
            if not command.special_in_script
        }
        version = self.version = node.version
        self._spell = shortest_text if version.has((7, 2)) else None
        short_ways = {name: SHORT_WAYS.get(name.lower(), {}) for name in commands}
        self._find_plain = commands.get
        # Commands that scripts gave numbers: an exception costs more than to look first.
        self._numeric: set[bytes] = set()
        self._slot: list[Any] = [None]
        """The last result of a direct call."""
        self._turn = [True]
        """Taken out while Lua runs: the slot, and all that is said of a run here, serve one thread at a time. To pop
        from a list is one step for all threads, as to take a lock is, and takes a tenth of the time."""
        libraries = library_callables(self.sandbox, self._writer)
        guarded = {name: self._guarded(function) for name, function in (self._callables() | libraries).items()}
        unguarded = {"call": self._call, "take": self._take}
        direct = Direct(self._perform, self._slot) if version is DEFAULT else None  # writes numbers as 7.0 does
        self.sandbox.install(files, unguarded | guarded, version.script_constants(), direct)
        self._writer.marks = self.sandbox.marks()
        self._compile = self.sandbox.function("compile")
        self._numbers = 0
        self._fast_path = fast_path = self.sandbox.fast_path
        if fast_path is not None:
            self._equipment = (
                commands,
                short_ways,
                CALL_BYTES,
                limits.argument_bytes_max,
                limits.memory_bytes_max,
                self._answer,
                self._refuse,
                self._note_write,
                self._line,
                self._spend,
                OK,
                lupa.LuaError,
            )
            fast_path.equip(*self._equipment)

    def _take_turn(self) -> None:
        """Take the state for this thread. Raises RuntimeError when it is in use: by another thread, or by a script that
        this one runs."""
        try:
            self._turn.pop()
        except IndexError:
            raise RuntimeError("a Lua state runs one script at a time; give each thread shards of its own") from None

    def _enter(self) -> str:
        """The same, with ``set_point``."""
        self._take_turn()
        return set_point()

    def _leave(self, numbers: str) -> None:
        put_back_point(numbers)
        self._turn.append(True)

    def _begin(self) -> None:
        self._stopped = None  # here, for a type checker would not believe that anyone sets it behind its back

    def compile(self, text: bytes, name: bytes) -> Any:
        """A Lua function from text; ``name`` is that of the chunk. Raises ErrorReply with Lua's message alone."""
        if compile_steps(text) > max(self.limits.instructions_max, COMPILED_FREE):
            raise ScriptTimeout("instructions")
        previous = self._enter()
        self.sandbox.allow_more(2 * len(text))
        self._begin()
        try:
            compiled = self._compile(text, name)
        except lupa.LuaError as error:
            compiled = None, str(error).encode()
        finally:
            self.sandbox.allow_more(0)
            self._leave(previous)
        if self._stopped is not None:
            raise self._stopped
        if isinstance(compiled, tuple):
            raise ErrorReply(compiled[1])
        return compiled

    def run(
        self,
        run: ScriptRun,
        name: bytes,
        kind: str,
        function: Any,
        key_count: int,
        values: Sequence[bytes],
        number: int = 0,
    ) -> Reply:
        """Run a compiled function as a "script" or a "function" (of a library); ``name`` is what errors call it, and
        ``values`` are its keys and then its arguments. ``number``: of a script (``CompiledScript``).

        Raises ErrorReply, ScriptTimeout, UnsupportedCommand, NodeCrashed.
        """
        self._take_turn()
        try:
            return self._run_alone(run, name, kind, function, key_count, values, number)
        finally:
            self._turn.append(True)

    def _run_alone(
        self,
        run: ScriptRun,
        name: bytes,
        kind: str,
        function: Any,
        key_count: int,
        values: Sequence[bytes],
        number: int,
    ) -> Reply:
        node = self.node = run.node
        self._run = run
        self._is_plain = is_plain = (
            node.effects is None and not run.watched and not node.master_link_down and not node.scripts_may_call_all
        )
        time_us = node.now_ms * 1000 + node.now_us if is_plain else -1
        if time_us >= TIME_US_MAX:
            time_us = -1
        self._begin()
        self._argument_bytes_left = self._argument_bytes_max
        resp, database = node.resp, node.database
        node.resp = 2
        node.work_max = node.work + self._work_max
        try:
            fast_path, outcome = self._fast_path, NotImplemented
            if number and is_plain and fast_path is not None and not self._is_recording and watchdog.current is None:
                outcome = fast_path.run(node, number, time_us, key_count, values, not run.read_only and node.is_calm())
            if outcome is NotImplemented:
                outcome = self._run_by_lupa(name, kind, function, key_count, values, time_us)
            return self._reply(outcome, name, resp)
        except lupa.LuaError as error:
            raise self._failure(error, name) from None
        finally:
            self._end(node, resp, database)

    def run_calls(
        self, run: ScriptRun, numbers: dict[bytes, int], commands: Sequence[Sequence[bytes]], replies: list[Reply]
    ) -> None:
        """Run the scripts that ``commands`` (EVALSHA ...) call, from the first on, and append what each replies, an
        ErrorReply too; up to the first that is not usual, which has not begun then. Each runs as ``run`` would run it:
        what is done once here does not change between them. ``numbers``: those of scripts without flags, by their SHA1.

        Raises as ``run``, but for ErrorReply."""
        node = run.node
        fast_path, time_us = self._fast_path, node.now_ms * 1000 + node.now_us
        if fast_path is None or self._is_recording or watchdog.current is not None or time_us >= TIME_US_MAX:
            return
        call_script, bytes_max, work_max = fast_path.call_script, self._argument_bytes_max, self._work_max
        now: Any = time_us
        resp, database = node.resp, node.database
        self._take_turn()
        self.node, self._run, self._is_plain = node, run, True
        self._argument_bytes_left = bytes_max
        try:
            for argv in commands:
                if not node.is_calm():
                    break
                self._begin()
                run.wrote = False
                node.growth_left = GROWTH_MAX_BYTES
                node.resp = 2
                begun = node.work
                node.work_max = begun + work_max
                try:
                    outcome = call_script(node, argv, numbers, now)
                    if outcome is NotImplemented:
                        break
                    replies.append(self._reply(outcome, argv[1], resp))
                except lupa.LuaError as error:
                    raise self._failure(error, argv[1]) from None
                except ErrorReply as refusal:
                    replies.append(refusal)
                if node.work - begun >= CHARGED or self._argument_bytes_left != bytes_max or node.database != database:
                    self._end(node, resp, database)
                    self._run = run
                    self._argument_bytes_left = bytes_max
        finally:
            self._end(node, resp, database)
            node.work += fast_path.take_units()
            self._turn.append(True)

    def _reply(self, outcome: Any, name: bytes, resp: int) -> Reply:
        """The reply of a script that has ended, by what ``run.lua`` returns. Raises ErrorReply, or why it was
        stopped."""
        if self._stopped is not None:
            self.sandbox.clean()
            raise self._reason(name, outcome)
        kind = type(outcome)
        if kind is bytes or kind is int or kind is list:
            return cast(Reply, outcome)
        return result_of(self.sandbox, outcome, name, resp, self.node)

    def _failure(self, error: BaseException, name: bytes) -> BaseException:
        """What to raise for an error of Lua that no script saw."""
        self.sandbox.clean()
        return self._stopped if self._stopped is not None else broken(name, str(error).encode())

    def _end(self, node: NodeState, resp: int, database: int) -> None:
        node.resp = resp
        if node.database != database:
            node.use(database)
        node.script_line = self._run = None
        work = node.work - node.work_max + self._work_max
        if work >= CHARGED:
            node.charged += work // CHARGED
        node.work_max = UNCOUNTED
        node.work += (self._argument_bytes_max - self._argument_bytes_left) // CALL_BYTES

    def _run_by_lupa(
        self, name: bytes, kind: str, function: Any, key_count: int, values: Sequence[bytes], time_us: int
    ) -> Any:
        """What ``run.lua`` returns."""
        size = len(_join(values))
        is_large = size > ARGUMENT_BYTES_MAX
        if (
            is_large
            or self._memory_used() > self._memory_max
            or (self.node.effects is not None) is not self._is_recording
        ):
            self._adapt(size)
        runner = self._runners[kind].get(key_count)
        passed: Sequence[Any] = values
        if runner is None or len(values) > ARGUMENTS_IN_REGISTERS_MAX:
            runner, passed = self._find_runner(kind, key_count, values)
        if self._portions:
            self._portions = []
        heartbeat = watchdog.current
        numbers = set_point()
        if heartbeat is not None:
            heartbeat.begin(name, values[:key_count], values[key_count:])
        try:
            return runner(function, None if time_us < 0 else time_us, *passed)
        finally:
            if heartbeat is not None:
                heartbeat.end()
            put_back_point(numbers)
            if is_large:
                self.sandbox.allow_more(0)

    def compile_script(self, sha: bytes, text: bytes) -> CompiledScript:
        """As ``compile``, once for all shards. ``sha`` is that of the script of which ``text`` is the body."""
        function = self.compiled.get(sha)
        if function is None:
            self._numbers += 1
            function = CompiledScript(self.compile(text, b"@user_script"), self._numbers)
            self.sandbox.function("number")(function.number, function.function)
            if len(self.compiled) < COMPILED_MAX:
                self.compiled[sha] = function
        return function

    def register(self, library: Any) -> Sequence[Any] | ErrorReply:
        """Run the compiled code of a function library: name, callback, description or False, and flags of each function
        that it registers; or the error that it ends with. Raises ScriptTimeout."""
        previous = self._enter()
        self._begin()
        try:
            outcome = self.sandbox.function("load_library")(library)
        except lupa.LuaError as error:
            outcome = False, b"failure", str(error).encode()
        finally:
            self._leave(previous)
        if self._stopped is not None:
            raise self._stopped
        if not outcome[0]:
            return ErrorReply(outcome[2] or b"")
        table, size = outcome
        take = self.sandbox.function("registered_functions")
        registered: list[Any] = []
        for start in range(1, size + 1, REGISTERED_AT_ONCE):
            registered += take(table, start, min(start + REGISTERED_AT_ONCE - 1, size))
        return registered

    def _find_runner(self, kind: str, key_count: int, values: Sequence[bytes]) -> tuple[Any, Sequence[Any]]:
        """The Lua function that runs a script with so many keys, and what it takes for ``values``."""
        if key_count > KEYS_IN_REGISTERS_MAX or len(values) > ARGUMENTS_IN_REGISTERS_MAX:
            tables = (self._list(values[:key_count]), self._list(values[key_count:]))
            return self.sandbox.function(f"run_{kind}"), tables
        runner = self._runners[kind][key_count] = self.sandbox.function(f"{kind}_runner")(key_count)
        return runner, values

    def _list(self, items: Sequence[bytes]) -> Any:
        table, append = self.sandbox.table(), self.sandbox.function("append")
        for start in range(0, len(items), ARGUMENTS_IN_REGISTERS_MAX):
            append(table, *items[start : start + ARGUMENTS_IN_REGISTERS_MAX])
        return table

    def _adapt(self, size: int) -> None:
        """Make the Lua side ready for a run that is not like the last one."""
        if size > ARGUMENT_BYTES_MAX or self._memory_used() > self._memory_max:
            self.sandbox.clean()
            if size > ARGUMENT_BYTES_MAX:
                self.sandbox.allow_more(2 * size)
        self._is_recording = self.node.effects is not None
        self.sandbox.function("set_recording")(self._is_recording)
        if self._fast_path is not None:
            self._fast_path.set_recording(self._is_recording)

    def _reason(self, name: bytes, outcome: Any) -> BaseException:
        """Why the script was stopped; ErrorReply if it was killed, as that has a reply."""
        assert self._stopped is not None
        if not isinstance(self._stopped, ScriptKilled):
            return self._stopped
        source, line = outcome[2:] if isinstance(outcome, tuple) else (b"@user_script", b"0")
        return ErrorReply(KILLED + b" script: %b, on %b:%b." % (name, source, b"%d" % line))

    def _callables(self) -> dict[str, Callable[..., Any]]:
        return {
            "line": self._line,
            "portion": self._portion,
            "call_portions": self._call_portions,
            "limit": self._limit,
            "charge": self._charge,
            "prepare": self._prepare,
            "set_resp": self._set_resp,
            "note_setting": self._note_setting,
            "random": lambda: self.node.lua_random.draw(),
            "seed_random": lambda seed: self.node.lua_random.seed(seed),
            "may_call": self._may_call,
            "text": self.version.text,
            "number_text": shortest_text,
            "is_valkey": lambda: self.version.is_valkey,
            "clock": lambda: (self.node.now_ms - self.node.started_ms) / 1000,
            "has": lambda major, minor: self.version.has((int(major), int(minor))),
            "has_written": lambda: self._run is not None and self._run.wrote,
        }

    def _may_call(self, *argv: bytes) -> bool | None:
        """Whether the caller's user may call this; None: there is no such command."""
        if find(argv, self.node.spellings) is None:
            return None
        caller = self.node.caller
        return caller.guard is None or bool(caller.guard.may(caller, argv))

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """No Python exception may reach Lua, as a script could catch it and would hold a Python object; and no result
        may be too large for the memory that is left, as Lua's error would then unwind Python's own frames."""

        def guarded(*arguments: Any) -> Any:
            try:
                result = function(*arguments)
                items = result if type(result) is tuple else (result,)
                size = sum(len(item) for item in items if type(item) is bytes)
                if size < REPLY_BYTES_MAX and (self._memory_used() <= self._memory_max or not self._is_full()):
                    return result
                self._stopped = ErrorReply(b"ERR Error running script, not enough memory")
            except BaseException as error:
                self._stopped = error
            return None, b"abort"

        return guarded

    def _call(self, *argv: Any) -> Any:
        """``redis.call`` in Python: see ``receive`` in redis.lua for what it returns."""
        try:
            if not argv:
                return None, b"error", self.version.text(NO_ARGUMENTS), UNSENT
            numeric = self._numeric
            name = argv[0]
            if name in numeric:
                argv = texts(argv, self._spell)
            try:
                size = len(_join(argv))
            except TypeError:
                argv = texts(argv, self._spell)
                if len(numeric) < NUMERIC_MAX:
                    numeric.add(name)
                size = len(_join(argv))
        except NotText as reason:
            return None, reason.case, self.version.text(NOT_TEXT), UNSENT
        except BaseException as error:
            self._stopped = error
            return None, b"abort"
        return self._perform(argv, size)

    def _perform(self, argv: tuple[bytes, ...], size: int) -> Any:
        """The same with arguments that are texts, of ``size`` bytes in all."""
        try:
            if self._memory_used() > self._memory_max and self._is_full():
                return None, b"full"
            many = len(argv) - FEW_ARGUMENTS
            self._argument_bytes_left = left = (
                self._argument_bytes_left - size - CALL_BYTES - (many * ARGUMENT_BYTES if many > 0 else 0)
            )
            if left < 0:
                return self._limit(b"bytes handed to redis.call")
            run: Any = self._run
            node = self.node
            if len(argv) > MANY_ARGUMENTS:
                node.spend(len(argv) * UNITS_PER_ARGUMENT)
            found = self._find_plain(argv[0]) if self._is_plain else None
            if found is None:
                reply = run.call(argv)
            else:  # what is left of the checks of ScriptRun.call, without the call
                handler, least, most, is_write = found
                if least <= len(argv) <= most and (run.wrote or not is_write):
                    reply = handler(node, argv)
                else:
                    reply = run.call(argv)
            return reply if type(reply) is int else self._answer(reply)
        except BaseException as error:
            return self._refuse(error)

    def _answer(self, reply: Reply) -> Any:
        """What Lua receives for a reply."""
        try:
            node = self.node
            kind = type(reply)
            if kind is bytes:
                length = len(cast(bytes, reply))
                if length > LONG_REPLY:
                    if length >= REPLY_BYTES_MAX:
                        return None, b"full"
                    node.spend(length // BYTES_PER_UNIT)
                return reply
            if kind is list:
                node.spend(len(cast("list[Reply]", reply)) * UNITS_PER_ITEM)
            return None if reply is OK else self._writer.write(reply, node.resp)
        except BaseException as error:
            return self._refuse(error)

    def _refuse(self, error: BaseException) -> Any:
        """What Lua receives for an exception."""
        if isinstance(error, ErrorReply):
            return None, b"error", error.message, REFUSED if type(error) is RefusedCall else True
        if isinstance(error, ReplyTooLarge):
            return None, b"full"
        self._stopped = error
        return None, b"abort"

    def _note_write(self) -> bool:
        """Before the first write that goes straight to its command: whether nothing can refuse it, which the run then
        notes."""
        run = self._run
        if run is None or run.read_only or not run.node.is_calm():
            return False
        run.wrote = True
        return True

    def _spend(self, size: int) -> int:
        """Note what calls that went straight to their commands have taken of ``argument_bytes_max``; what is left."""
        self._argument_bytes_left -= size
        return self._argument_bytes_left

    def _take(self) -> Any:
        """What a direct call has left in the slot."""
        result, self._slot[0] = self._slot[0], None
        if isinstance(result, BaseException):
            self._stopped = result
            return None, b"abort"
        return result

    def _is_full(self) -> bool:
        """Whether memory is full even without garbage; a tenth must be free, or the next call would collect again."""
        self.sandbox.collect()
        return self._memory_used() > self._memory_max * 0.9

    def _portion(self, *argv: bytes) -> None:
        self._portions += argv

    def _call_portions(self) -> Any:
        argv, self._portions = tuple(self._portions), []
        return self._call(*argv)

    def _line(self, line: int) -> None:
        self.node.script_line = line

    def _limit(self, limit: bytes) -> tuple[None, bytes]:
        self._stopped = ScriptTimeout(limit.decode())
        return None, b"abort"

    def _charge(self) -> None:
        self.node.charged += 1
        server = self.node.server
        if server is not None and self._run is not None:
            fast_path = self._fast_path
            has_written = self._run.wrote or (fast_path is not None and fast_path.has_written())
            if server.script_runs_on(has_written):
                raise ScriptKilled

    def _prepare(self, chunk: bytes) -> tuple[bytes | None, bool, bytes | None]:
        try:
            prepared = prepare_chunk(chunk, self.sandbox.host_names)
        except BytecodeError as error:
            return None, False, str(error).encode()
        return prepared.changed, prepared.assigns_globals, None

    def _set_resp(self, version: int) -> None:
        self.node.resp = version
        if self._fast_path is not None:
            self._fast_path.set_resp(version)

    def _note_setting(self) -> None:
        self.owner = self.node
