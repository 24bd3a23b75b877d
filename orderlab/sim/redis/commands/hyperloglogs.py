"""HyperLogLog, in the server's own encoding: a string of 16 bytes of header and 16,384 registers, sparse or dense.

``GET`` shows it, so that the sparse form is split and merged exactly as ``hllSparseSet`` of Redis 7.0.15 does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from orderlab.sim.redis.node_state import NodeState
from orderlab.sim.redis.registry import command
from orderlab.sim.redis.replies import OK, ErrorReply, Reply

_REGISTERS: Final = 1 << 14
_HEADER_BYTES: Final = 16
_DENSE_BYTES: Final = _HEADER_BYTES + _REGISTERS * 6 // 8
_Q: Final = 64 - 14
_ALPHA: Final = 0.721347520444481703680
_SPARSE_MAX_BYTES: Final = 3000
"""``hll-sparse-max-bytes``."""
_VALUE_MAX, _RUN_MAX, _ZERO_MAX = 32, 4, 64
"""Of the sparse form: the largest value, the longest run of one, the longest run of zeros in one byte."""
_STALE: Final = 0x80
"""In the last byte of the cached count: it has to be counted anew."""
_EMPTY: Final = b"HYLL\x01" + bytes(11) + b"\x7f\xff"
_WORK: Final = 40_000
"""Units of reading all registers."""
_MASK: Final = (1 << 64) - 1
_NOT_ONE: Final = ErrorReply(b"WRONGTYPE Key is not a valid HyperLogLog string value.")
_CORRUPTED: Final = ErrorReply(b"INVALIDOBJ Corrupted HLL object detected")


def murmur_hash(data: bytes, seed: int = 0xADC83B19) -> int:
    """MurmurHash64A."""
    factor = 0xC6A4A7935BD1E995
    value = seed ^ (len(data) * factor & _MASK)
    whole = len(data) & ~7
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * factor & _MASK
        word = (word ^ word >> 47) * factor & _MASK
        value = (value ^ word) * factor & _MASK
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * factor & _MASK
    value = (value ^ value >> 47) * factor & _MASK
    return value ^ value >> 47


def place_of(element: bytes) -> tuple[int, int]:
    """The register of an element, and what it asks of it: one more than the zeros that its hash ends with."""
    hashed = murmur_hash(element)
    rest = hashed >> 14 | 1 << _Q
    return hashed & _REGISTERS - 1, (rest & -rest).bit_length()


def _run(data: Sequence[int], at: int) -> tuple[int, int, int]:
    """Of the sparse form: the length of the run at ``at``, its value, its bytes."""
    first = data[at]
    if first & 0x80:
        return (first & 3) + 1, (first >> 2 & 31) + 1, 1
    if first & 0x40:
        return ((first & 0x3F) << 8 | data[at + 1]) + 1, 0, 2
    return (first & 0x3F) + 1, 0, 1


def _zeros(length: int) -> bytes:
    return bytes((0x40 | length - 1 >> 8, length - 1 & 0xFF)) if length > _ZERO_MAX else bytes((length - 1,))


def _values(value: int, length: int) -> bytes:
    return bytes((0x80 | value - 1 << 2 | length - 1,))


def registers_of(data: bytes | bytearray) -> bytearray:
    """All registers. Raises ErrorReply for what is none or broken."""
    registers = bytearray(_REGISTERS)
    if data[4] == 0:
        for group in range(_REGISTERS // 4):
            at = _HEADER_BYTES + 3 * group
            packed = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            for place in range(4):
                registers[4 * group + place] = packed >> 6 * place & 63
        return registers
    at, first = _HEADER_BYTES, 0
    while at < len(data):
        if data[at] & 0xC0 == 0x40 and at + 1 == len(data):
            raise _CORRUPTED
        length, value, size = _run(data, at)
        if first + length > _REGISTERS:
            raise _CORRUPTED
        if value:
            registers[first : first + length] = bytes((value,)) * length
        first += length
        at += size
    if first != _REGISTERS:
        raise _CORRUPTED
    return registers


def _to_dense(data: bytearray) -> None:
    if data[4] == 0:
        return
    registers = registers_of(data)
    packed = bytearray()
    for at in range(0, _REGISTERS, 4):
        first, second, third, fourth = registers[at : at + 4]
        packed += (first | second << 6 | third << 12 | fourth << 18).to_bytes(3, "little")
    data[_HEADER_BYTES:] = packed
    data[4] = 0


def _set_dense(data: bytearray, index: int, count: int) -> bool:
    at, shift = _HEADER_BYTES + index * 6 // 8, index * 6 & 7
    word = int.from_bytes(data[at : at + 2], "little")
    if word >> shift & 63 >= count:
        return False
    word = word & ~(63 << shift) | count << shift
    data[at : at + 2] = word.to_bytes(2, "little")[: len(data[at : at + 2])]
    return True


def _set(data: bytearray, index: int, count: int) -> bool:
    """Let a register be at least ``count``; whether it was less. Raises ErrorReply for what is broken."""
    if data[4] == 0:
        return _set_dense(data, index, count)
    if count > _VALUE_MAX:
        _to_dense(data)
        return _set_dense(data, index, count)
    at, first, before = _HEADER_BYTES, 0, _HEADER_BYTES
    while True:
        if at >= len(data) or (data[at] & 0xC0 == 0x40 and at + 1 == len(data)):
            raise _CORRUPTED
        length, value, size = _run(data, at)
        if index < first + length:
            break
        before = at
        at += size
        first += length
    if value >= count:
        return False
    last = first + length - 1
    filled = _zeros if not value else lambda length: _values(value, length)
    parts = filled(index - first) if index > first else b""
    parts += _values(count, 1)
    parts += filled(last - index) if index < last else b""
    added = len(parts) - size
    if added > 0 and len(data) + added > _SPARSE_MAX_BYTES:
        _to_dense(data)
        return _set_dense(data, index, count)
    data[at : at + size] = parts
    _merge(data, before)
    return True


def _merge(data: bytearray, at: int) -> None:
    """Join neighbouring runs of the same value, looking at five of them."""
    for _ in range(5):
        if at >= len(data):
            return
        length, value, size = _run(data, at)
        if value and at + 1 < len(data):
            next_length, next_value, _ = _run(data, at + 1) if data[at + 1] & 0x80 else (0, 0, 0)
            if value == next_value and length + next_length <= _RUN_MAX:
                data[at : at + 2] = _values(value, length + next_length)
                continue
        at += size


def _sigma(x: float) -> float:
    if x == 1.0:
        return math.inf
    y, z = 1.0, x
    while True:
        x *= x
        before = z
        z += x * y
        y += y
        if before == z:
            return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z = 1.0, 1 - x
    while True:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
        if before == z:
            return z / 3


def count_of(registers: bytes | bytearray) -> int:
    """The estimate of how many elements were added (``hllCount``)."""
    m = float(_REGISTERS)
    z = m * _tau((m - registers.count(_Q + 1)) / m)
    for value in range(_Q, 0, -1):
        z = (z + registers.count(value)) * 0.5
    z += m * _sigma(registers.count(0) / m)
    estimate = _ALPHA * m * m / z
    return math.floor(estimate) + (estimate - math.floor(estimate) >= 0.5)


def _checked(node: NodeState, key: bytes) -> bytes | None:
    """What is at a key. Raises ErrorReply for what is no HyperLogLog."""
    data: bytes | None = node.lookup_as(key, bytes)
    if data is not None and (
        len(data) < _HEADER_BYTES or data[:4] != b"HYLL" or data[4] > 1 or (not data[4] and len(data) != _DENSE_BYTES)
    ):
        raise _NOT_ONE
    return data


def _put(node: NodeState, key: bytes, data: bytes, changes: int) -> None:
    node.grow(len(data))
    node.install(key, data)
    node.set_string_encoding(key, b"raw")
    node.modified(key, changes)


@command("pfadd", -2, "write denyoom fast", (1, 1, 1))
def pfadd(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PFADD key [element ...]: whether a register was altered, or the key is new."""
    old = _checked(node, argv[1])
    data = bytearray(_EMPTY if old is None else old)
    node.spend(len(data) // 80 + sum(len(each) // 4 for each in argv[2:]))
    changes = int(old is None)
    for element in argv[2:]:
        if data[4]:
            node.spend(4 * len(data))
        changes += _set(data, *place_of(element))
    if changes:
        data[15] |= _STALE
        _put(node, argv[1], bytes(data), changes)
    elif old is not None:
        node.set_string_encoding(argv[1], b"raw")
    return int(changes > 0)


def _merged(node: NodeState, keys: Sequence[bytes]) -> tuple[bytearray, bool]:
    """The largest values of all registers, and whether one of the keys is dense."""
    registers, is_dense = bytearray(_REGISTERS), False
    for key in keys:
        data = _checked(node, key)
        if data is None:
            continue
        node.spend(_WORK)
        is_dense |= data[4] == 0
        registers = bytearray(map(max, registers, registers_of(data)))
    return registers, is_dense


@command("pfcount", -2, "readonly", (1, -1, 1), may_replicate=True)
def pfcount(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PFCOUNT key [key ...]: of one key the count is kept in its header, which is a change of the key."""
    if len(argv) > 2:
        return count_of(_merged(node, argv[1:])[0])
    data = _checked(node, argv[1])
    if data is None:
        return 0
    if not data[15] & _STALE:
        node.set_string_encoding(argv[1], b"raw")
        return int.from_bytes(data[8:16], "little")
    node.spend(_WORK)
    count = count_of(registers_of(data))
    _put(node, argv[1], data[:8] + count.to_bytes(8, "little") + data[16:], 1)
    return count


@command("pfmerge", -2, "write denyoom", (1, -1, 1))
def pfmerge(node: NodeState, argv: Sequence[bytes]) -> Reply:
    """PFMERGE destkey [sourcekey ...]."""
    registers, is_dense = _merged(node, argv[1:])
    data = bytearray(_checked(node, argv[1]) or _EMPTY)
    if is_dense:
        _to_dense(data)
    for index, count in enumerate(registers):
        if count:
            if data[4]:
                node.spend(4 * len(data))
            _set(data, index, count)
    data[15] |= _STALE
    _put(node, argv[1], bytes(data), 1)
    return OK
