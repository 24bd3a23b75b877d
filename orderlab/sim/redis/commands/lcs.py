"""LCS: the longest common subsequence of two strings."""

from __future__ import annotations

from collections.abc import Sequence

from orderlab.sim.redis.arguments import integer, option
from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import SYNTAX_ERROR, ErrorReply, Reply, mapping

_CELL_BYTES = 4
_CELLS_BEFORE_COUNTED = 1 << 20


def _table(one: bytes, other: bytes) -> list[list[int]]:
    """Row i, column j: the length for the first i bytes of ``one`` and the first j of ``other``."""
    rows = [[0] * (len(other) + 1)]
    for byte in one:
        above, row = rows[-1], [0]
        for at, facing in enumerate(other):
            row.append(above[at] + 1 if byte == facing else max(above[at + 1], row[at]))
        rows.append(row)
    return rows


Match = tuple[int, int, int]
"""Where it begins in the one string, where in the other, and its length."""


def _walk_back(one: bytes, other: bytes, table: list[list[int]]) -> tuple[bytes, list[Match]]:
    """The subsequence, and its contiguous matches from the last to the first."""
    result = bytearray()
    matches: list[Match] = []
    i, j, length = len(one), len(other), 0
    while i > 0 and j > 0:
        if one[i - 1] == other[j - 1]:
            result.append(one[i - 1])
            i, j, length = i - 1, j - 1, length + 1
            continue
        if length:
            matches.append((i, j, length))
            length = 0
        if table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    if length:
        matches.append((i, j, length))
    return bytes(reversed(result)), matches


@command("lcs", -3, "readonly", (1, 2, 1))
def lcs(shard: NodeState, argv: Sequence[bytes]) -> Reply:
    """LCS key1 key2 [LEN] [IDX] [MINMATCHLEN n] [WITHMATCHLEN]."""
    values = [shard.lookup(key) for key in argv[1:3]]
    if any(value is not None and not isinstance(value, bytes) for value in values):
        raise ErrorReply(b"ERR The specified keys must contain string values")
    one, other = (value if isinstance(value, bytes) else b"" for value in values)
    given: set[bytes] = set()
    shortest, at = 0, 3
    while at < len(argv):
        word = option(argv[at])
        if word == b"MINMATCHLEN" and at + 1 < len(argv):
            at += 1
            shortest = max(0, integer(argv[at]))
        elif word in (b"LEN", b"IDX", b"WITHMATCHLEN"):
            given.add(word)
        else:
            raise ErrorReply(SYNTAX_ERROR)
        at += 1
    if {b"LEN", b"IDX"} <= given:
        raise ErrorReply(b"ERR If you want both the length and indexes, please just use IDX.")
    cells = (len(one) + 1) * (len(other) + 1)
    if cells * _CELL_BYTES > shard.config.proto_max_bulk_len:
        raise ErrorReply(b"ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
    if cells > _CELLS_BEFORE_COUNTED:
        shard.grow(64 * cells)  # a table is slow and large here: a script that asks for many is stopped
    table = _table(one, other)
    if b"LEN" in given:
        return table[-1][-1]
    result, matches = _walk_back(one, other, table)
    if b"IDX" not in given:
        return result
    ranges: list[Reply] = []
    for i, j, length in matches:
        if length >= shortest:
            ends: list[Reply] = [[i, i + length - 1], [j, j + length - 1]]
            ranges.append([*ends, length] if b"WITHMATCHLEN" in given else ends)
    return mapping(shard.resp, [b"matches", ranges, b"len", table[-1][-1]])
