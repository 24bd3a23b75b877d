"""A trace as a shell script of redis-cli calls, with the replies that it should bring."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orderlab.model.errors import InputError
from orderlab.properties.export.on_server import (
    Elapsed,
    Held,
    Left,
    LeftOut,
    Plan,
    Put,
    ReplayedStep,
    StoreCall,
    Text,
    TimePasses,
    Unknown,
    Woven,
    digest_of,
    reader_for,
)
from orderlab.properties.harness.recording import shown_bytes
from orderlab.sim.redis.replies import ErrorReply, Status

HEAD = r"""
set -u
cli() { printf '%s\n' "$1" | redis-cli --no-raw "${server[@]}"; }
differs=0
call() { # a command; what redis-cli prints for the reply, or nothing where that is not compared
    local got
    got=$(cli "$1")
    printf '%s\n' "$got"
    case "$got" in '(error)'*) got='(error)' ;; esac
    if [ "${2-}" = times ]; then got=$(printf '%s\n' "$got" | sed -E 's/[0-9]{10,}/TIME/g'); fi
    if [ $# -ge 3 ] && [ "$got" != "$3" ]; then
        printf '   DIFFERS; on the kernel it was:\n%s\n' "$3"
        differs=1
    fi
}
quiet() { cli "$1" >/dev/null; }
keys() { # how many there should be; KEYS, as DBSIZE counts those that ran out and were not removed yet
    call 'EVAL "return #redis.call('"'KEYS', '*'"')" 0' exact "(integer) $1"
}
say() { printf '\n%s\n' "$1"; }
moved=0 waited=0
pass() { # milliseconds: by waiting, or by moving the deadlines of keys nearer
    if [ "$sleeps" = 1 ]; then
        waited=$((waited + $1))
        sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"
    else
        moved=$((moved + $1))
        quiet 'EVAL "for _, k in ipairs(redis.call('"'KEYS', '*'"')) do local at = redis.call('"'PEXPIRETIME'"', k) if at >= 0 then redis.call('"'PEXPIREAT'"', k, at - ARGV[1]) end end" 0 '"$1"
    fi
}
server=("$@")
if [ "$(cli DBSIZE)" != '(integer) 0' ]; then
    echo 'the server is not there, or its database is not empty; name another with -h HOST -p PORT' >&2
    exit 2
fi
time_ms() { redis-cli "${server[@]}" TIME | tr '\n' ' ' | awk '{ printf "%d%03d", $1, $2 / 1000 }'; }
start=$(time_ms)
ahead=$(((align - start % align) % align))
if [ "$align" -gt 1 ] && [ "$ahead" -le 60000 ]; then
    sleep "$(printf '%d.%03d' $((ahead / 1000)) $((ahead % 1000)))"
    start=$((start + ahead))
fi
"""  # noqa: E501
TAIL = """
ended=$(time_ms)
quiet FLUSHDB
late=$((ended - start - waited)) tries=${tries-5}
if [ "$differs" = 1 ] && [ "$late" -ge "$late_max" ] && [ "$tries" -gt 1 ]; then
    printf '\\nthe steps came %d ms late, and leases run out meanwhile: once more\\n' "$late"
    tries=$((tries - 1)) exec bash "$0" "$@"
fi
if [ "$differs" = 1 ]; then
    printf '\\nsome replies differ from those on the kernel\\n'
    exit 1
fi
printf '\\nevery reply is as it was on the kernel\\n'
"""


def redis_cli_script(plan: Plan) -> str:
    """The text of the script."""
    told = plan.transcript
    lines = ["#!/usr/bin/env bash", f"# {_line(told.title)}"]
    lines += [
        "# Usage: bash THIS_FILE [-h HOST] [-p PORT]: the server must hold nothing (Redis 7), and is emptied at "
        "the end."
    ]
    if any(move.broken for move in told.moves):
        lines += [
            "# Exit code 0: the server did the same, so the law is broken there as well; 1: a reply differs; 2: no "
            "empty server."
        ]
    else:
        lines += ["# Exit code 0: the server did the same; 1: a reply differs; 2: no empty server."]
    lines += [f"# Note: {_line(note)}" for note in plan.notes]
    lines += [f"sleeps={int(plan.sleeps)} align={plan.align_ms} late_max={plan.late_ms}", HEAD.strip()]
    digests: dict[bytes, str] = {}
    for number, (name, source) in enumerate(told.scripts.items()):
        variable = f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}_{number}"
        variable = variable if variable[0].isalpha() else f"script_{variable}"
        digests[hashlib.sha1(source).hexdigest().encode()] = variable
        lines += ["", f"# {_line(name)}", f"{variable}={shlex.quote(quoted(source))}"]
        if source.startswith(b"#!") and b"name=" in source.split(b"\n", 1)[0]:
            lines += [f'quiet "FUNCTION LOAD REPLACE ${variable}"']
    for step in plan.steps:
        lines += _step(step, digests)
    return "\n".join([*lines, TAIL.strip()]) + "\n"


def quoted(data: bytes) -> str:
    """Bytes as an argument that redis-cli reads: printable ones as they are, others as escapes."""
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 13: "\\r", 9: "\\t", 7: "\\a", 8: "\\b"}
    return (
        '"' + "".join(escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in data) + '"'
    )


def printed(reply: Any, prefix: str = "") -> str:
    """What ``redis-cli --no-raw`` prints for a reply of RESP2, as its ``cliFormatReplyTTY`` does; an error without its
    words."""
    if isinstance(reply, ErrorReply):
        return "(error)"
    if reply is None:
        return "(nil)"
    if isinstance(reply, Status):
        return reply.decode("latin-1")
    if isinstance(reply, bytes):
        return quoted(reply)
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if not reply:
        return "(empty array)"
    width = len(str(len(reply)))
    inner = prefix + " " * (width + 2)
    return f"\n{prefix}".join(f"{at:>{width}}) {printed(one, inner)}" for at, one in enumerate(reply, 1))


def _line(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _step(step: ReplayedStep, digests: Mapping[bytes, str]) -> Iterator[str]:
    move = step.move
    if not step.number and not step.acts:
        return
    yield ""
    yield f"say {shlex.quote(_line(f'{step.number}. {move.action}'))}"
    for law, text in move.broken:
        yield f"say {shlex.quote(_line(f'   {law} is violated: {text}'))}"
    for act in step.acts:
        if isinstance(act, TimePasses):
            yield f"pass {act.ms}"
        elif isinstance(act, Put):
            yield f"# {_line(act.why)}"
            yield from (f"quiet {_command(argv)}" for argv in act.commands)
        elif isinstance(act, LeftOut):
            yield f"# not sent ({_line(act.why)}): {shown_bytes(b' '.join(act.argv))[:200]}"
        else:
            yield from _sent(act, digests)
    yield "say '   the keys:'"
    yield f"keys {len(step.keys)}"
    for name, held in step.keys.items():
        yield from _held(name, held)


def _sent(act: StoreCall, digests: Mapping[bytes, str]) -> Iterator[str]:
    yield from (f"quiet {_command(argv)}" for argv in act.enter)
    if act.connection:
        raise InputError(
            "--export redis-cli: clients that watch keys have a connection each, and every call of redis-cli one of "
            "its own; export pytest"
        )
    variable = digests.get(digest_of(act.argv))
    command = _command(act.argv)
    if variable is not None:
        command = f'"{bytes(act.argv[0]).upper().replace(b"SHA", b"").decode()} ${variable} "{_command(act.argv[2:])}'
    yield f"call {command}{_expected(act.reply)}"
    yield from (f"quiet {_command(argv)}" for argv in act.leave)


def _command(argv: Sequence[Woven]) -> str:
    """A command line of redis-cli as one word of the shell; moments are reckoned there."""
    return "".join(_shell(" ") + one if number else one for number, one in enumerate(map(_argument, argv)))


def _argument(value: Woven) -> str:
    if isinstance(value, Text):
        return (
            _shell('"')
            + "".join(_shell(quoted(part)[1:-1]) if isinstance(part, bytes) else _moment(part) for part in value.parts)
            + _shell('"')
        )
    plain = value.decode("ascii", "replace")
    return _shell(plain if re.fullmatch(r"[A-Za-z0-9_:{}.-]+", plain) else quoted(value))


def _shell(text: str) -> str:
    """Text within a word of the shell, in quotes that nothing gets out of."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _moment(one: Elapsed) -> str:
    ms = f"start + {one.offset_ms}"
    return {
        "ms": f"$(({ms}))",
        "s": f"$((({ms}) / 1000))",
        "us": f"$((({ms}) * 1000))",
        "deadline": f"$(({ms} - moved))",
    }[one.unit]


def _expected(reply: Woven) -> str:
    """The two arguments that say what is compared, and how; none where nothing is."""
    if _has(reply, Unknown | Left) or _has(reply, Elapsed, short=True):
        return ""  # it depends on how long the steps take
    has_times = _has(reply, Elapsed)
    return f" {'times' if has_times else 'exact'} {shlex.quote(printed(_plain(reply)))}"


def _has(value: Woven, kinds: Any, short: bool = False) -> bool:
    """Whether there is a part of these kinds in a reply. ``short``: a moment before the beginning, whose digits tell
    nothing."""
    if isinstance(value, Text):
        return any(_has(part, kinds, short) for part in value.parts)
    if isinstance(value, list):
        return any(_has(one, kinds, short) for one in value)
    return isinstance(value, kinds) and (not short or value.offset_ms < 0)


def _plain(value: Woven) -> Any:
    """The reply with the word for a time in place of its moments."""
    if isinstance(value, Text):
        return b"".join(part if isinstance(part, bytes) else b"TIME" for part in value.parts)
    if isinstance(value, Elapsed):
        return _Time()
    return [_plain(one) for one in value] if isinstance(value, list) else value


class _Time(int):
    """An integer that is a moment."""

    def __format__(self, form: str) -> str:
        return "TIME"


def _held(name: bytes, held: Held) -> Iterator[str]:
    """Calls that show a key. Fields and members one by one, for their order is the server's; deadlines are shown, not
    compared."""
    value = held.value
    if held.kind in ("hash", "set") and isinstance(value, list) and not _has(value, Unknown | Left | Elapsed):
        size, one = (b"HLEN", b"HGET") if held.kind == "hash" else (b"SCARD", b"SISMEMBER")
        count = len(value) // 2 if held.kind == "hash" else len(value)
        yield f"call {_command((size, name))}{_expected(count)}"
        inside = zip(value[::2], value[1::2], strict=True) if held.kind == "hash" else ((member, 1) for member in value)
        yield from (f"call {_command((one, name, field))}{_expected(told)}" for field, told in inside)
    else:
        compared = "" if held.kind in ("hash", "set") else _expected(value)
        yield f"call {_command(reader_for(held.kind, name))}{compared}"
    yield f"call {_command((b'PTTL', name))}" + (" exact '(integer) -1'" if held.deadline is None else "")
