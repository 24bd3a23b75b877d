"""Prepared commands: machine code and Python make the same arguments of the same columns, and refuse the same."""

import random

import numpy as np
import pytest

from orderlab.sim.engine.packs import NumberedNames
from orderlab.sim.native import choose
from orderlab.sim.native.choose import columns_of
from orderlab.sim.redis.prepared import BYTES
from orderlab.sim.redis.prepared import columns_of as read_columns
from orderlab.sim.redis.prepared import prepare as interpreted
from orderlab.sim.redis.prepared_command import PreparedCommand

WHOLE = (0, 1, 9, 10, 99, 12_345, 999_999_999, 10**9, 2**31, 2**53, 2**63 - 1, -1, -42, -(2**63))


def column(draw, rows, digits):
    """Bytes or numbers, in one of the forms that columns have."""
    numbers = draw.choice((list, tuple, array, strided))(draw.choice(WHOLE) for _ in range(rows))
    if digits != BYTES:
        return numbers
    if draw.random() < 0.4:
        return NumberedNames(
            draw.choice((b"", b"s", b"100% p/", b"x" * 40)), draw.choice((0, 1, 7, 20)), numbers, draw.random() < 0.3
        )
    return draw.choice((list, tuple))(draw.randbytes(draw.choice((0, 1, 8, 300))) for _ in range(rows))


def array(numbers):
    return np.array(list(numbers), np.int64)


def strided(numbers):
    """A column of a table, backwards."""
    return np.stack((np.zeros(len(row := array(numbers)[::-1]), np.int64), row), 1)[::-1, 1]


def drawn(draw):
    """(arguments, columns) of a command."""
    rows, kinds = (
        draw.randint(1, 12),
        [draw.choice((BYTES, BYTES, 0, 0, 1, 4, 9, 13, 20)) for _ in range(draw.randint(1, 8))],
    )
    columns = tuple(column(draw, rows, digits) for digits in kinds)
    values = [(column, digits) for column, digits in enumerate(kinds)]
    arguments = [
        tuple(
            draw.choice((*values, b"", b"{", b"%d", bytes(range(256)))) for _ in range(draw.choice((1, 2, 5, 12, 80)))
        )
        for _ in range(draw.randint(0, 12))
    ]
    return arguments, columns, [draw.randrange(rows) for _ in range(draw.randint(0, 30))]


def machine_code(arguments):
    if choose.prepared is None:
        pytest.skip("there is no machine code; run python -m orderlab.sim.native.build")
    return choose.prepare(arguments)


def test_machine_code_makes_what_python_makes():
    draw = random.Random(5)
    for _ in range(2000):
        arguments, columns, places = drawn(draw)
        assert machine_code(arguments)(places, columns_of(columns)) == interpreted(arguments)(
            places, read_columns(columns)
        ), (arguments, columns, places)


@pytest.mark.parametrize(
    ("make", "read"), [(machine_code, columns_of), (interpreted, read_columns)], ids=["machine code", "python"]
)
@pytest.mark.parametrize(
    ("arguments", "columns", "error"),
    [
        ([((0, BYTES), b"x")], ([1],), TypeError),
        ([((0, 0),)], ([b"x"],), TypeError),
        ([((0, BYTES),)], ([b"x"],), IndexError),
        ([(b"x", (1, BYTES))], ([b"x"] * 9,), (IndexError, TypeError)),
        ([((0, BYTES), b"x")], (np.arange(9),), TypeError),
        ([((0, 4),)], (NumberedNames(b"s", 7, np.arange(9)),), TypeError),
        ([((0, BYTES),)], (NumberedNames(b"s", 7, np.arange(3)),), IndexError),
    ],
    ids=[
        "a number for bytes",
        "bytes for a number",
        "too short a column",
        "no such column",
        "numbers for bytes",
        "names for a number",
        "too few names",
    ],
)
def test_what_does_not_fit_is_refused(make, read, arguments, columns, error):
    with pytest.raises(error):
        make(arguments)([0, 5], read(columns))


def test_a_command_is_cut_at_its_marks_and_only_there():
    command = PreparedCommand(
        [b"SET", b"{NAME}:NAMES", b"", b"a1111b22", b"11112222"],
        [(b"NAME", BYTES), (b"1111", 4), (b"22", 0), (b"never", BYTES)],
    )
    assert command.render([1, 0], columns_of(([b"x", b"yy"], [7, 65_536], [0, -3], ()))) == [
        [b"SET", b"{yy}:yyS", b"", b"a65536b-3", b"65536-3-3"],
        [b"SET", b"{x}:xS", b"", b"a0007b0", b"000700"],
    ]
    assert [command.takes(mark) for mark in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(
    "column",
    [
        7,
        b"bytes",
        {1},
        np.arange(4, dtype=np.int32),
        np.zeros(4),
        np.zeros((2, 2), np.int64),
        NumberedNames(b"x" * 41, 7, [1]),
        NumberedNames(b"s", 21, [1]),
    ],
    ids=["a number", "bytes", "a set", "32 bits", "floats", "a table", "a long prefix", "many digits"],
)
def test_machine_code_refuses_what_is_no_column(column):
    with pytest.raises((TypeError, ValueError)):
        machine_code([((0, 0),)])([0], columns_of((column,)))
