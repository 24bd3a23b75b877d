"""One run of a script in the shadow, and whether it did what the kernel's own run does."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from orderlab.model.errors import InputError
from orderlab.properties.shadow.arithmetic import NotFollowed
from orderlab.properties.shadow.calling import RedisCalls, plain
from orderlab.properties.shadow.interpreter import Interpreter, LuaError
from orderlab.properties.shadow.library import LuaFunctions
from orderlab.properties.shadow.marked import ARGUMENT, LuaTable, MarkedValue, Path
from orderlab.properties.syntax import Chunk
from orderlab.sim.redis.backends import Backend
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.stores.binding.results import ScriptCall

FAILED = "failed"


@dataclass
class Shadowed:
    """What was seen of one call."""

    call: ScriptCall
    path: Path = field(default_factory=Path)
    reply: Any = None
    why_not: str = ""
    """Why the run was not followed, if it was not."""


@lru_cache(maxsize=256)
def _parsed(source: bytes, name: str) -> Chunk:
    return Chunk.parse(source, name)


def run_in_shadow(call: ScriptCall, backend: Backend) -> Shadowed:
    """Run a call of a script with marked values on the keys that ``backend`` holds, and change them as it does."""
    seen = Shadowed(call)
    if call.function is not None:
        seen.why_not = "it is a function of a library"
        return seen
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(max(depth, 4_000))
    try:
        chunk = _parsed(call.script.source, call.script.name)
        interpreter = Interpreter(chunk, call.script.name, seen.path, {})
        interpreter.globals |= LuaFunctions(interpreter).names()
        interpreter.globals[b"redis"] = MarkedValue(RedisCalls(interpreter, backend).names())
        interpreter.globals[b"KEYS"] = MarkedValue(_given(call.keys, seen.path, is_marked=False))
        interpreter.globals[b"ARGV"] = MarkedValue(_given(call.args, seen.path, is_marked=True))
        result = interpreter.run()
        seen.reply = plain(result[0]) if result else None
    except LuaError:
        seen.reply = FAILED
    except NotFollowed as reason:
        seen.why_not = f"it uses {reason}"
    except InputError:
        seen.why_not = "it cannot be parsed"
    except (AttributeError, TypeError, IndexError, KeyError, ValueError) as error:
        seen.why_not = f"a function is given what it does not take ({type(error).__name__})"
    finally:
        sys.setrecursionlimit(depth)
    return seen


def _given(texts: tuple[bytes, ...], path: Path, is_marked: bool) -> LuaTable:
    items: dict[Any, MarkedValue] = {}
    for at, text in enumerate(texts, 1):
        marks = frozenset({at}) if is_marked else frozenset()
        digits = text.removeprefix(b"-")
        is_number = is_marked and digits.isdigit() and len(digits) < 20
        items[float(at)] = MarkedValue(text, path.symbol(ARGUMENT, at, float(text)) if is_number else None, marks)
    return LuaTable(items, site=-1 if is_marked else None)


def compare(seen: Shadowed, keys_here: Any, keys_there: Any, reply: Any) -> None:
    """Note where the kernel's own run did otherwise: then nothing is known of it."""
    if seen.why_not:
        return
    if isinstance(reply, ErrorReply):
        differs = seen.reply != FAILED and not isinstance(seen.reply, ErrorReply)
    else:
        differs = seen.path.is_exact and seen.reply != reply
    if differs or (seen.path.is_exact and keys_here != keys_there):
        seen.why_not = "the shadow did otherwise than the kernel"
