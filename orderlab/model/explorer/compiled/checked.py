"""Python's operators on 64-bit integers for generated code: what raises there sets `error[0]` here and yields 0.

The loop ends after a state whose expansion set it, and the interpreter repeats that state to raise what the text raises.
"""

from __future__ import annotations

from numba import int64, njit


@njit
def raised(error):  # type: ignore[no-untyped-def]
    """An expression that raises wherever it is evaluated."""
    error[0] = 1
    return int64(0)


@njit
def checked(index, size, error):  # type: ignore[no-untyped-def]
    """The index of an array of the state: 0..size-1, no index counts from the end."""
    if index < 0 or index >= size:
        error[0] = 1
        return int64(0)
    return int64(index)


@njit
def entry(index, size, error):  # type: ignore[no-untyped-def]
    """The index of a tuple or a list: -size..size-1."""
    if index < -size or index >= size:
        error[0] = 1
        return int64(0)
    return int64(index + size if index < 0 else index)


@njit
def quotient(a, b, error):  # type: ignore[no-untyped-def]
    if b == 0:
        error[0] = 1
        return int64(0)
    return int64(a // b)


@njit
def remainder(a, b, error):  # type: ignore[no-untyped-def]
    if b == 0:
        error[0] = 1
        return int64(0)
    return int64(a % b)


@njit
def shifted_left(a, b, error):  # type: ignore[no-untyped-def]
    """`a << b`, of which the translation has proved that it fits."""
    if b < 0:
        error[0] = 1
        return int64(0)
    return int64(0) if a == 0 else int64(a << b)


@njit
def shifted_right(a, b, error):  # type: ignore[no-untyped-def]
    """`a >> b`: a processor shifts by the count modulo 64, Python by all of it."""
    if b < 0:
        error[0] = 1
        return int64(0)
    return int64(a >> min(b, 63))


@njit
def power(a, n):  # type: ignore[no-untyped-def]
    """`a ** n` for a count that is no less than 0, of which the translation has proved that it fits."""
    product = int64(1)
    for _ in range(n):
        product *= a
    return product
