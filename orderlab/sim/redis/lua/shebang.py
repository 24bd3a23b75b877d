"""The first line of a script, ``#!lua flags=...``, and of a function library, ``#!lua name=...`` (Redis 7)."""

from __future__ import annotations

from dataclasses import dataclass

from orderlab.sim.redis.lua.run import ScriptFlags
from orderlab.sim.redis.replies import ErrorReply

FLAGS = {
    b"no-writes": "no_writes",
    b"allow-oom": "allow_oom",
    b"allow-stale": "allow_stale",
    b"no-cluster": "no_cluster",
    b"allow-cross-slot-keys": "allow_cross_slot_keys",
}
_ESCAPES = {0x6E: b"\n", 0x72: b"\r", 0x74: b"\t", 0x62: b"\b", 0x61: b"\a"}
_BLANKS = b" \t\n\v\f\r"


@dataclass(frozen=True, slots=True)
class Shebang:
    """``flags`` is None when the text has no such line; ``body`` is the rest, its line break included."""

    flags: ScriptFlags | None
    body: bytes


def split_arguments(line: bytes) -> list[bytes] | None:
    """Words of a line, quoted or not (``sdssplitargs``); None if the quotes do not balance."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at >= len(line) or line[at] == 0:
            return words
        word = bytearray()
        while at < len(line) and line[at] not in _BLANKS and line[at] != 0:
            if line[at] in b"\"'":
                quoted = _quoted(line, at, word)
                if quoted is None:
                    return None
                at = quoted
                break
            word.append(line[at])
            at += 1
        words.append(bytes(word))


def _quoted(line: bytes, at: int, word: bytearray) -> int | None:
    """Append the quoted text that begins at ``at``; the position after it, or None."""
    quote = line[at]
    at += 1
    while at < len(line) and line[at] != 0:
        char = line[at]
        if quote == 0x22 and char == 0x5C and line[at + 1 : at + 2] == b"x" and _is_hex(line[at + 2 : at + 4]):
            word.append(int(line[at + 2 : at + 4], 16))
            at += 4
        elif char == 0x5C and at + 1 < len(line) and (quote == 0x22 or line[at + 1] == 0x27):
            word += _ESCAPES.get(line[at + 1], line[at + 1 : at + 2]) if quote == 0x22 else b"'"
            at += 2
        elif char == quote:
            after = line[at + 1 : at + 2]
            return at + 1 if after in (b"", b"\0") or after in _BLANKS else None
        else:
            word.append(char)
            at += 1
    return None


def _is_hex(text: bytes) -> bool:
    return len(text) == 2 and all(char in b"0123456789abcdefABCDEF" for char in text)


def parse_shebang(source: bytes) -> Shebang:
    """The flags of an EVAL script (``evalExtractShebangFlags``). Raises ErrorReply."""
    if not source.startswith(b"#!"):
        return Shebang(None, source)
    end = source.split(b"\0")[0].find(b"\n")
    if end < 0:
        raise ErrorReply(b"ERR Invalid script shebang")
    words = split_arguments(source[:end])
    if not words:
        raise ErrorReply(b"ERR Invalid engine in script shebang")
    if words[0] != b"#!lua":
        raise ErrorReply(b"ERR Unexpected engine in script shebang: " + words[0])
    chosen: set[str] = set()
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise ErrorReply(b"ERR Unknown lua shebang option: " + word)
        for flag in word[6:].split(b",") if word[6:] else ():
            if flag not in FLAGS:
                raise ErrorReply(b"ERR Unexpected flag in script shebang: " + flag)
            chosen.add(FLAGS[flag])
    return Shebang(ScriptFlags(**dict.fromkeys(chosen, True)), source[end:])
