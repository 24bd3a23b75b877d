"""What generated code calls: Python's operators on 64-bit integers, and the hash table of packed states.

What raises in Python sets `error[0]` here and yields 0. The table is open addressing over rows of 63-bit words. A slot
holds the words of a state and beside them the state's number, so that one memory access decides whether a successor is
known. Free slots have -1 in their first word, which no packed state has.
"""

from __future__ import annotations

from numba import int64

from orderlab.model.machine_code import njit


@njit()
def raised(error):  # type: ignore[no-untyped-def]
    """An expression that raises wherever it is evaluated."""
    error[0] = 1
    return int64(0)


@njit()
def checked(index, size, error):  # type: ignore[no-untyped-def]
    """The index of an array of the state: 0..size-1, no index counts from the end."""
    if index < 0 or index >= size:
        error[0] = 1
        return int64(0)
    return int64(index)


@njit()
def entry(index, size, error):  # type: ignore[no-untyped-def]
    """The index of a tuple or a list: -size..size-1."""
    if index < -size or index >= size:
        error[0] = 1
        return int64(0)
    return int64(index + size if index < 0 else index)


@njit()
def quotient(a, b, error):  # type: ignore[no-untyped-def]
    if b == 0:
        error[0] = 1
        return int64(0)
    return int64(a // b)


@njit()
def remainder(a, b, error):  # type: ignore[no-untyped-def]
    if b == 0:
        error[0] = 1
        return int64(0)
    return int64(a % b)


@njit()
def shifted_left(a, b, error):  # type: ignore[no-untyped-def]
    """`a << b`, of which the translation has proved that it fits."""
    if b < 0:
        error[0] = 1
        return int64(0)
    return int64(0) if a == 0 else int64(a << b)


@njit()
def shifted_right(a, b, error):  # type: ignore[no-untyped-def]
    """`a >> b`: a processor shifts by the count modulo 64, Python by all of it."""
    if b < 0:
        error[0] = 1
        return int64(0)
    return int64(a >> min(b, 63))


@njit()
def power(a, n):  # type: ignore[no-untyped-def]
    """`a ** n` for a count that is no less than 0, of which the translation has proved that it fits."""
    product = int64(1)
    for _ in range(n):
        product *= a
    return product


@njit()
def inside(value, low, high, error):  # type: ignore[no-untyped-def]
    """A value that is put into a set, a record or a sequence."""
    if value < low or value > high:
        error[0] = 1
        return int64(low)
    return int64(value)


@njit()
def ones(code):  # type: ignore[no-untyped-def]
    """How many members a set has."""
    found = int64(0)
    while code != 0:
        code &= code - 1
        found += 1
    return found


@njit()
def replaced(code, stride, size, digit):  # type: ignore[no-untyped-def]
    """A record with another digit at one place."""
    return int64(code + (digit - code // stride % size) * stride)


@njit()
def element_at(code, lengths, radix, index, error):  # type: ignore[no-untyped-def]
    """An element of a sequence, from either end. A sequence is its length (of `lengths` many) and then its elements."""
    length = code % lengths
    if index < -length or index >= length:
        error[0] = 1
        return int64(0)
    rest = code // lengths
    for _ in range(index + length if index < 0 else index):
        rest //= radix
    return int64(rest % radix)


@njit()
def has_element(code, lengths, radix, digit):  # type: ignore[no-untyped-def]
    rest = code // lengths
    for _ in range(code % lengths):
        if rest % radix == digit:
            return True
        rest //= radix
    return False


@njit()
def appended(code, lengths, radix, digit, error):  # type: ignore[no-untyped-def]
    """A sequence with one element more."""
    length = code % lengths
    if length == lengths - 1:
        error[0] = 1
        return int64(code)
    weight = int64(lengths)
    for _ in range(length):
        weight *= radix
    return int64(code + 1 + digit * weight)


@njit()
def dropped(code, lengths, radix, many):  # type: ignore[no-untyped-def]
    """A sequence without its first elements."""
    rest, length = code // lengths, code % lengths
    for _ in range(many):
        rest //= radix
    return int64(rest * lengths + max(length - many, 0))


@njit()
def without_last(code, lengths, radix):  # type: ignore[no-untyped-def]
    length = code % lengths
    if length == 0:
        return int64(code)
    weight = int64(1)
    for _ in range(length - 1):
        weight *= radix
    return int64(code // lengths % weight * lengths + length - 1)


CALLED = (
    "appended",
    "checked",
    "dropped",
    "element_at",
    "entry",
    "has_element",
    "inside",
    "ones",
    "power",
    "quotient",
    "raised",
    "remainder",
    "replaced",
    "shifted_left",
    "shifted_right",
    "without_last",
)
"""What generated expressions call."""

FREE = -1


@njit(inline="always")
def hashed(rows, row):  # type: ignore[no-untyped-def]
    """Multiply and fold each word in turn (the finalizer of splitmix64, with signed words)."""
    h = int64(0)
    for word in range(rows.shape[1]):
        h = (h ^ rows[row, word]) * int64(-4658895280553007687)
        h = (h ^ (h >> 29)) * int64(-7723592293110705685)
    return h ^ (h >> 32)


@njit(inline="always")
def slot_of(table, rows, row, mask):  # type: ignore[no-untyped-def]
    """The slot that holds the row, or the free slot where it belongs."""
    at = hashed(rows, row) & mask
    words = rows.shape[1]
    while table[at, 0] != FREE:
        same = True
        for word in range(words):
            if table[at, word] != rows[row, word]:
                same = False
        if same:
            return at
        at = (at + 1) & mask
    return at


@njit(cache=True)
def rehash(table, numbers, rows, count):  # type: ignore[no-untyped-def]
    """Enter the first `count` rows, which are distinct, into an empty table."""
    mask = table.shape[0] - 1
    words = rows.shape[1]
    for row in range(count):
        at = slot_of(table, rows, row, mask)
        for word in range(words):
            table[at, word] = rows[row, word]
        numbers[at] = row


@njit(cache=True)
def look_up(table, numbers, rows):  # type: ignore[no-untyped-def]
    """The number of the state in row 0 of `rows`, or -1."""
    at = slot_of(table, rows, 0, table.shape[0] - 1)
    return numbers[at] if table[at, 0] != FREE else -1
