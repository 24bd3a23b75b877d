"""The Lua host of one shard: compiled scripts, and the functions that a running script calls in Python."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import lupa.lua51 as lupa

from sim.redis import lua_bit, lua_bytecode, lua_msgpack, lua_struct
from sim.redis.abort import ScriptKilled
from sim.redis.lua_json import JsonError, JsonReader, quote
from sim.redis.lua_replies import ReplyWriter, ResultReader, error_line, to_integer
from sim.redis.lua_shebang import parse_shebang
from sim.redis.registry import find
from sim.redis.replies import ErrorReply, Reply
from sim.redis.sandbox import Limits, Sandbox, ScriptTimeout
from sim.redis.script_run import ScriptFlags, ScriptRun

if TYPE_CHECKING:
    from sim.redis.shard import Shard

NO_SCRIPT = b"NOSCRIPT No matching script. Please use EVAL."
ARGUMENTS_IN_REGISTERS_MAX = 3000
"""Keys and arguments that go onto the Lua stack; longer lists go in portions into tables."""
KEYS_IN_REGISTERS_MAX = 100
"""Keys are parameters of a Lua function, which may have 200 local variables."""
REPLY_BYTES_MAX = 16 << 20
"""Bytes of one reply that may enter a script; below the reserve of the sandbox."""
CONSTANTS: dict[str, Any] = {
    "LOG_DEBUG": 0, "LOG_VERBOSE": 1, "LOG_NOTICE": 2, "LOG_WARNING": 3,
    "REPL_NONE": 0, "REPL_AOF": 1, "REPL_SLAVE": 2, "REPL_REPLICA": 2, "REPL_ALL": 3,
    "REDIS_VERSION": b"7.0.15", "REDIS_VERSION_NUM": 0x0007000F,
}  # fmt: skip
ARGUMENT_BYTES_MAX = 8 << 20
"""Keys and arguments beyond this get memory of their own for the run."""
NO_ARGUMENTS = b"ERR Please specify at least one argument for this redis lib call"
NOT_TEXT = b"ERR Lua redis lib command arguments must be strings or integers"
KILLED = b"ERR Error running script, killed"
NO_MESSAGE = b"ERR Error running script %b, the error table has no string in the field 'err' (a real server crashes here)"
_MASK_48 = (1 << 48) - 1
_join = b"".join


@dataclass(slots=True)
class Script:
    """A compiled script."""

    sha: bytes
    """SHA1 of its source in hexadecimal, lower case."""
    source: bytes
    flags: ScriptFlags | None
    """What its shebang declares; None without one."""
    function: Any = field(repr=False)


class LuaHost:
    """Runs scripts on ``shard``. One script at a time; not reentrant, as the server's is not."""

    libraries: tuple[str, ...] = ()

    def __init__(self, shard: Shard, limits: Limits | None = None) -> None:
        self.shard = shard
        self.limits = limits or Limits()
        self.scripts: dict[bytes, Script] = {}
        self.random_state = 0x1234ABCD330E
        """48 bits of the sequence behind math.random. It begins anew with the process only, not with a script."""
        self._run: ScriptRun | None = None
        self._stopped: BaseException | None = None
        """Why the running script may not go on; raised when it has unwound."""
        self._argument_bytes_left = 0
        self._portions: list[bytes] = []
        self._start()

    def _start(self) -> None:
        self.sandbox = Sandbox(self.limits)
        self._writer = ReplyWriter()
        self._call = self._make_call()
        self.sandbox.install(self._callables(), CONSTANTS)
        self._memory_used, self._memory_max = self.sandbox.memory_used, self.limits.memory_bytes_max
        self._instructions_max = self.limits.instructions_max
        marks = self._writer.marks = self.sandbox.marks()
        self._null = self.sandbox.function("null")
        self._msgpack = lua_msgpack.MsgpackReader(marks["array"], marks["table"], marks["null"])
        self._compile = self.sandbox.function("compile")
        self._runners: dict[int, Any] = {}
        self._is_recording = False

    # -- scripts -------------------------------------------------------------------------------------------

    def load(self, source: bytes) -> Script:
        """Compile ``source``, or find it compiled. Raises ErrorReply."""
        sha = hashlib.sha1(source).hexdigest().encode()
        script = self.scripts.get(sha)
        if script is None:
            shebang = parse_shebang(source)
            function = self.compile(shebang.body, b"@user_script")
            script = self.scripts[sha] = Script(sha, source, shebang.flags, function)
        return script

    def compile(self, text: bytes, name: bytes) -> Any:
        """A Lua function from text. Raises ErrorReply."""
        self.sandbox.allow_more(2 * len(text))
        self._stopped = None
        try:
            compiled = self._compile(text, name)
        except lupa.LuaError as error:
            compiled = None, str(error).encode()
        finally:
            self.sandbox.allow_more(0)
        if self._stopped is not None:
            raise self._stopped
        if isinstance(compiled, tuple):
            raise ErrorReply(error_line(b"ERR Error compiling script (new function): " + compiled[1]))
        return compiled

    def flush(self) -> None:
        """Forget all scripts, with the Lua state that they shared (settings of cjson)."""
        self.scripts.clear()
        self._start()

    def evalsha(self, sha: bytes, keys: Sequence[bytes], args: Sequence[bytes], read_only: bool = False) -> Reply:
        """Run a loaded script. Raises ErrorReply (NOSCRIPT too), ScriptTimeout, UnsupportedCommand, NodeCrashed."""
        script = self.scripts.get(sha) or self.scripts.get(sha.lower())
        if script is None:
            raise ErrorReply(NO_SCRIPT)
        return self.run(script, keys, args, read_only)

    def eval(self, source: bytes, keys: Sequence[bytes], args: Sequence[bytes], read_only: bool = False) -> Reply:
        """Load a script and run it."""
        return self.run(self.load(source), keys, args, read_only)

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes], read_only: bool = False) -> Reply:
        """Run a script of this host. Raises as ``evalsha``."""
        run = ScriptRun.begin(self.shard, script.flags, read_only, keys)
        values = (*keys, *args)
        size = len(_join(values))
        key_count = len(keys)
        if len(values) > ARGUMENTS_IN_REGISTERS_MAX or key_count > KEYS_IN_REGISTERS_MAX:
            runner = self.sandbox.function("run_script")
            values = (self._list(keys), self._list(args))
        else:
            runner = self._runners.get(key_count)
            if runner is None:
                runner = self._runners[key_count] = self.sandbox.function("script_runner")(key_count)
        return self._enter(run, script.sha, size, runner, script.function, values)

    def _list(self, items: Sequence[bytes]) -> Any:
        table, append = self.sandbox.table(), self.sandbox.function("append")
        for start in range(0, len(items), ARGUMENTS_IN_REGISTERS_MAX):
            append(table, *items[start : start + ARGUMENTS_IN_REGISTERS_MAX])
        return table

    # -- one run -------------------------------------------------------------------------------------------

    def _enter(
        self, run: ScriptRun, name: bytes, size: int, runner: Any, function: Any, values: tuple[Any, ...]
    ) -> Reply:
        """Let the Lua function ``runner`` run ``function`` on ``values``, which hold ``size`` bytes; its reply."""
        shard = self.shard
        is_large = size > ARGUMENT_BYTES_MAX
        if is_large or self._memory_used() > self._memory_max or (shard.effects is not None) is not self._is_recording:
            self._adapt(size)
        self._run = run
        self._stopped = None
        self._argument_bytes_left = self.limits.argument_bytes_max
        resp = shard.resp
        shard.resp = 2
        try:
            outcome = runner(function, self._instructions_max, *values)
            if self._stopped is not None:
                raise self._reason(name, outcome)
            kind = type(outcome)
            if kind is bytes or kind is int:
                return outcome
            script_resp, shard.resp = shard.resp, resp
            return self._result(outcome, name, ResultReader(resp, script_resp))
        except lupa.LuaError as error:
            self.sandbox.collect()
            if self._stopped is not None:
                raise self._stopped from None
            raise _broken(name, str(error).encode()) from None
        finally:
            shard.resp = resp
            shard.script_line = self._run = None
            if is_large:
                self.sandbox.allow_more(0)

    def _adapt(self, size: int) -> None:
        """Make the Lua side ready for a run that is not like the last one."""
        if size > ARGUMENT_BYTES_MAX or self._memory_used() > self._memory_max:
            self.sandbox.collect()
            if size > ARGUMENT_BYTES_MAX:
                self.sandbox.allow_more(2 * size)
        self._is_recording = self.shard.effects is not None
        self.sandbox.function("set_recording")(self._is_recording)

    def _reason(self, name: bytes, outcome: Any) -> BaseException:
        """Why the script was stopped; ErrorReply if it was killed, as that has a reply."""
        assert self._stopped is not None
        if not isinstance(self._stopped, ScriptKilled):
            return self._stopped
        source, line = outcome[2:] if isinstance(outcome, tuple) else (b"@user_script", b"0")
        return ErrorReply(KILLED + b" script: %b, on %b:%b." % (name, source, b"%d" % line))

    def _result(self, outcome: Any, name: bytes, reader: ResultReader) -> Reply:
        """The reply for what ``run.lua`` returns. Raises ErrorReply for a script that failed."""
        if outcome is None:
            return None
        if outcome is True:
            return []
        if not isinstance(outcome, tuple):
            return to_integer(outcome)
        kind = outcome[0]
        if kind:
            items = list(outcome[1:])
            return items if set(map(type, items)) == {bytes} else [_item(item) for item in items]
        if kind is None:
            return self._tree(outcome, reader)
        if outcome[1] == b"boolean":
            return reader.boolean(outcome[2])
        if outcome[1] == b"failure":
            self.sandbox.collect()
            raise _broken(name, outcome[2])
        message, source, line = outcome[2:]
        if message is None:
            raise ErrorReply(NO_MESSAGE % name)
        if source is not None and line is not None:
            message += b" script: %b, on %b:%b." % (name, source, line)
        raise ErrorReply(error_line(message))

    def _tree(self, outcome: tuple[Any, ...], reader: ResultReader) -> Reply:
        size, parts = outcome[1], list(outcome[2:])
        take = self.sandbox.function("take_parts")
        while len(parts) < size:
            parts += take(len(parts) + 1)
        self.sandbox.function("drop_parts")()
        reply = reader.tree(parts)
        if isinstance(reply, ErrorReply):
            raise reply
        return reply

    # -- what Lua calls ------------------------------------------------------------------------------------

    def _callables(self) -> dict[str, Callable[..., Any]]:
        plain: dict[str, Callable[..., Any]] = {
            "line": self._line, "portion": self._portion, "call_portions": self._call_portions,
            "more": self._writer.more, "limit": self._limit, "prepare": self._prepare,
            "set_resp": self._set_resp, "command_exists": lambda *argv: find(argv) is not None,
            "sha1hex": lambda text: hashlib.sha1(text).hexdigest().encode(),
            "random": self._random, "seed_random": self._seed_random,
            "bit": lua_bit.compute, "quote": quote, "decode": self._decode,
            "struct_pack": _struct(lambda text, *values: (lua_struct.pack(text, values),)),
            "struct_unpack": _struct(lua_struct.unpack),
            "struct_size": _struct(lambda text: (lua_struct.size_of(text),)),
            "pack_double": lua_msgpack.pack_double, "pack_integer": lua_msgpack.pack_integer,
            "msgpack_unpack": self._msgpack_unpack,
        }  # fmt: skip
        return {"call": self._call} | {name: self._guarded(function) for name, function in plain.items()}

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """No Python exception may reach Lua: a script could catch it, and would hold a Python object."""

        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except BaseException as error:
                self._stopped = error
                return None, b"abort"

        return guarded

    def _make_call(self) -> Callable[..., Any]:
        shard, memory_used, write = self.shard, self.sandbox.memory_used, self._writer.write
        calls_max, memory_max = self.limits.calls_max, self.limits.memory_bytes_max

        def call(*argv: Any) -> Any:
            """``redis.call``: see ``receive`` in redis.lua for what it returns."""
            run = self._run
            assert run is not None
            try:
                try:
                    size = len(_join(argv))
                except TypeError:
                    argv = _texts(argv)
                    size = len(_join(argv))
                if memory_used() > memory_max:
                    return None, b"full"
                if run.calls >= calls_max:
                    return self._limit(b"calls of redis.call")
                if size > 1024:
                    self._argument_bytes_left -= size
                    if self._argument_bytes_left < 0:
                        return self._limit(b"bytes handed to redis.call")
                elif not argv:
                    return None, b"error", NO_ARGUMENTS
                reply = run.call(argv)
                kind = type(reply)
                if kind is bytes:
                    return reply if len(reply) < REPLY_BYTES_MAX else (None, b"full")
                if kind is int:
                    return reply
                return write(reply, shard.resp)
            except ErrorReply as error:
                return None, b"error", error.message, True
            except _NotText as reason:
                return None, reason.case, NOT_TEXT
            except BaseException as error:
                self._stopped = error
                return None, b"abort"

        return call

    def _portion(self, *argv: bytes) -> None:
        self._portions += argv

    def _call_portions(self) -> Any:
        argv, self._portions = tuple(self._portions), []
        return self._call(*argv)

    def _line(self, line: int) -> None:
        self.shard.script_line = line

    def _limit(self, limit: bytes) -> tuple[None, bytes]:
        self._stopped = ScriptTimeout(limit.decode())
        return None, b"abort"

    def _prepare(self, chunk: bytes) -> tuple[bytes | None, bytes | None]:
        try:
            return lua_bytecode.prepare(chunk, self.sandbox.host_names), None
        except lua_bytecode.BytecodeError as error:
            return None, str(error).encode()

    def _set_resp(self, version: int) -> None:
        self.shard.resp = version

    def _random(self) -> float:
        """The next number of lrand48, in 0..1."""
        self._remember_random_state()
        self.random_state = (self.random_state * 0x5DEECE66D + 0xB) & _MASK_48
        return (self.random_state >> 17) / 0x7FFFFFFF

    def _seed_random(self, seed: int) -> None:
        self._remember_random_state()
        self.random_state = (int(seed) & 0xFFFFFFFF) << 16 | 0x330E

    def _remember_random_state(self) -> None:
        if self.shard.undo is not None:
            self.shard.undo.append((setattr, self, "random_state", self.random_state))

    def _decode(self, text: bytes, depth_max: int, invalid_numbers: bool) -> tuple[Any, ...]:
        marks = self._writer.marks
        reader = JsonReader(text, depth_max, invalid_numbers, marks["array"], marks["object"], self._null)
        try:
            return True, *self._writer.tree(reader.read())
        except JsonError as error:
            return False, str(error).encode()

    def _msgpack_unpack(self, data: bytes, limit: int, offset: int) -> tuple[Any, ...]:
        try:
            count, at, flat = self._msgpack.read(data, limit, offset)
        except lua_msgpack.MsgpackError as error:
            return False, str(error).encode(), not error.is_placed
        return True, count, at, *self._writer.tree(flat)


class _NotText(Exception):
    """An argument of redis.call is not a string. ``case`` says what Lua does about it."""

    def __init__(self, case: bytes) -> None:
        super().__init__()
        self.case = case


def _texts(argv: Sequence[Any]) -> tuple[bytes, ...]:
    """Arguments with their numbers as ``%.17g`` writes them. 0 and NaN may carry a sign that only Lua can see."""
    texts = []
    for argument in argv:
        kind = type(argument)
        if kind is int and argument and -(10**17) < argument < 10**17:
            argument = b"%d" % argument
        elif kind is int or kind is float:
            if not argument or argument != argument:
                raise _NotText(b"retry")
            argument = b"%.17g" % argument
        elif kind is not bytes:
            raise _NotText(b"error")
        texts.append(argument)
    return tuple(texts)


def _item(item: Any) -> Reply:
    return item if type(item) is bytes else to_integer(item)


def _broken(name: bytes, message: bytes) -> ErrorReply:
    """A script that ended without an error of its own: out of memory, as a rule."""
    return ErrorReply(error_line(b"ERR Error running script %b, %.100b" % (name, message)))


def _struct(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
    def call(*arguments: Any) -> tuple[Any, ...]:
        try:
            return True, *function(*arguments)
        except lua_struct.StructError as error:
            return False, str(error).encode("latin-1")
        except lua_struct.ArgumentError as error:
            complaint = None if error.complaint is None else error.complaint.encode("latin-1")
            return False, error.number, error.expected.encode(), complaint

    return call


def host_of(shard: Shard) -> LuaHost:
    """The host of ``shard``, started when it is first needed."""
    if shard.lua_host is None:
        shard.lua_host = LuaHost(shard)
    return shard.lua_host
