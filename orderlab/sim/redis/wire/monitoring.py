"""What MONITOR shows: a line for each command, those that scripts call among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from orderlab.sim.redis.node_state import Effect, NodeState
from orderlab.sim.redis.registry import SCRIPT_CALLS

_HIDDEN: Final = frozenset((b"monitor", b"config", b"debug", b"acl", b"slowlog", b"latency"))
"""Commands of administration, which are not shown."""
_SECRET_SETTINGS: Final = (b"requirepass", b"masterauth", b"masteruser")
_HIDDEN_CLIENT: Final = frozenset((b"list", b"kill", b"pause", b"unpause", b"no-evict", b"unblock"))
_ESCAPES: Final = {
    ord("\\"): b"\\\\", ord('"'): b'\\"', ord("\n"): b"\\n", ord("\r"): b"\\r",
    ord("\t"): b"\\t", 7: b"\\a", 8: b"\\b",
}  # fmt: skip
_SHOWN: Final = [
    _ESCAPES.get(byte) or (bytes((byte,)) if 32 <= byte < 127 else b"\\x%02x" % byte) for byte in range(256)
]


def quoted(text: bytes) -> bytes:
    """As the server quotes what it shows (``sdscatrepr``)."""
    return b'"%b"' % b"".join([_SHOWN[byte] for byte in text])


def line(now_us: int, database: int, who: bytes, argv: Sequence[bytes]) -> bytes:
    """One command, as a status reply."""
    seconds, us = divmod(now_us, 1_000_000)
    return b"+%d.%06d [%d %b] %b\r\n" % (seconds, us, database, who, b" ".join(map(quoted, redacted(argv))))


def redacted(argv: Sequence[bytes]) -> Sequence[bytes]:
    """Without passwords."""
    name = argv[0].lower()
    if name == b"acl" and len(argv) > 2 and argv[1].lower() == b"setuser":
        return [*argv[:2], *[b"(redacted)"] * (len(argv) - 2)]
    if name == b"config" and len(argv) > 3 and argv[1].lower() == b"set":
        return [
            b"(redacted)" if at > 2 and at % 2 and argv[at - 1].lower() in _SECRET_SETTINGS else word
            for at, word in enumerate(argv)
        ]
    if name == b"auth":
        return [argv[0], *[b"(redacted)"] * (len(argv) - 1)]
    if name == b"hello":
        words = [word.upper() for word in argv]
        if b"AUTH" in words:
            at = words.index(b"AUTH")
            return [word if not at < place <= at + 2 else b"(redacted)" for place, word in enumerate(argv)]
    return argv


def is_hidden(argv: Sequence[bytes]) -> bool:
    """Whether MONITOR leaves a command out."""
    name = argv[0].lower()
    return name in _HIDDEN or (name == b"client" and len(argv) > 1 and argv[1].lower() in _HIDDEN_CLIENT)


def called(argv: Sequence[bytes], effects: Sequence[Effect]) -> Iterator[tuple[Sequence[bytes], bool, int | None]]:
    """The commands of a client's call in the order in which MONITOR shows them: words, whether a script called it,
    and its database (None: the client's). A script comes before what it calls, EXEC after what was queued."""
    name = argv[0].lower()
    by_script: list[Effect] = []
    inner: list[tuple[Sequence[bytes], bool, int | None]] = []
    for effect in effects[:-1] if effects and effects[-1].line is None else effects:
        if effect.line is not None:
            by_script.append(effect)
            continue
        inner.append((effect.argv, False, effect.database))
        inner += [(each.argv, True, each.database) for each in by_script]
        by_script = []
    rest = [(each.argv, True, each.database) for each in by_script]
    if name in SCRIPT_CALLS:
        yield argv, False, None
        yield from rest
    else:
        yield from inner
        yield argv, False, None


def lines(node: NodeState, database: int, who: bytes, argv: Sequence[bytes], effects: Sequence[Effect]) -> bytes:
    """What MONITOR shows of a client's call and of what it called; ``database`` is the client's."""
    now_us = node.now_ms * 1000 + node.now_us
    return b"".join(
        line(now_us, database if at is None else at, b"lua" if by_script else who, words)
        for words, by_script, at in called(argv, effects)
    )
