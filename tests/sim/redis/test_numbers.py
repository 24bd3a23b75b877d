"""Numbers as the server reads and writes them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.arguments import timeout_ms_of
from orderlab.sim.redis.long_doubles import add_long_doubles, long_double_text, parse_long_double
from orderlab.sim.redis.numbers import double_text, parse_double, parse_integer
from orderlab.sim.redis.replies import ErrorReply
from orderlab.sim.redis.wire import Connection

PIECES = [b"0", b"1", b"5", b".", b"e", b"E", b"-", b"+", b"x", b"X", b"p", b"a", b"F", b" ", b"\0", b"_", b"\n", b"00"]
PIECES += [b"9" * 17, b"400", b"inf", b"nan", b"INFINITY", b"123", b"e-320", b"e308", b"0x", b"-0"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0), (b"-1", -1), (b"9223372036854775807", 2**63 - 1), (b"-9223372036854775808", -(2**63)),
        (b"9223372036854775808", None), (b"-0", None), (b"00", None), (b"01", None), (b"+1", None), (b" 1", None),
        (b"1 ", None), (b"", None), (b"-", None), (b"1_0", None), (b"\xd9\xa1", None), (b"1" * 5000, None),
    ],
)  # fmt: skip
def test_integers_have_one_spelling(text: bytes, value: int | None) -> None:
    assert parse_integer(text) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_is_read_back(value: int) -> None:
    assert parse_integer(b"%d" % value) == value


@given(st.floats(allow_nan=False))
def test_every_double_is_read_back(value: float) -> None:
    read = parse_double(double_text(value))
    assert read == value
    assert math.copysign(1.0, read) == math.copysign(1.0, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, b"0.10000000000000001"), (-0.0, b"-0"), (1e15, b"1000000000000000"), (1e16, b"10000000000000000"),
     (1e17, b"1e+17"), (-3.0, b"-3"), (math.inf, b"inf"), (-math.inf, b"-inf"), (5e-324, b"4.9406564584124654e-324")],
)  # fmt: skip
def test_doubles_are_written_with_17_digits(value: float, text: bytes) -> None:
    assert double_text(value) == text


def test_long_doubles_differ_from_doubles() -> None:
    tenth, fifth = parse_long_double(b"0.1"), parse_long_double(b"0.2")
    assert tenth is not None
    assert fifth is not None
    total = add_long_doubles(tenth, fifth)
    assert total is not None
    assert long_double_text(total) == b"0.3"
    assert 0.1 + 0.2 != 0.3


def test_a_long_double_has_64_bits() -> None:
    def plus_one(text: bytes) -> bytes:
        value, one = parse_long_double(text), parse_long_double(b"1")
        assert value is not None
        assert one is not None
        total = add_long_doubles(value, one)
        assert total is not None
        return long_double_text(total)

    assert plus_one(b"%d" % (2**64 - 1)) == b"%d" % 2**64
    assert plus_one(b"%d" % 2**64) == b"%d" % 2**64  # ties to even
    assert plus_one(b"%d" % (2**64 + 2)) == b"%d" % (2**64 + 4)


@pytest.mark.parametrize(
    "text",
    [
        b"1e4933",
        b"1e-4970",
        b"1e99999999999",
        b"-1e-99999999999",
        b"0x1p99999",
        b"nan",
        b"",
        b"1e" + b"9" * 4500,
        b"0x1p-" + b"9" * 4500,
    ],
)
def test_what_no_long_double_holds(text: bytes) -> None:
    assert parse_long_double(text) is None


@pytest.mark.parametrize("text", [b"0", b"0.5", b"-0.0009", b"9223372036854775"])
def test_timeouts(text: bytes) -> None:
    timeout_ms_of(text, 0)


@pytest.mark.parametrize(
    ("text", "error"), [(b"-1", b"negative"), (b"1e16", b"negative"), (b"inf", b"negative"), (b"", b"float")]
)
def test_bad_timeouts(text: bytes, error: bytes) -> None:
    with pytest.raises(ErrorReply, match=error.decode()):
        timeout_ms_of(text, 0)


@pytest.mark.server
def test_random_texts_and_sums_agree_with_the_server() -> None:
    draw = random.Random(11)
    with ServerProcess() as server:
        connection = Connection(server.host, server.port)

        def ask(*argv: bytes) -> object:
            _, reply = connection.pipeline([(b"DEL", b"h", b"z"), argv])
            return reply.message[4:] if isinstance(reply, ErrorReply) else reply

        for _ in range(1500):
            text = b"".join(draw.choice(PIECES) for _ in range(draw.randint(0, 5)))
            integer = parse_integer(text)
            not_an_integer = b"value is not an integer or out of range"
            assert ask(b"HINCRBY", b"h", b"f", text) == (not_an_integer if integer is None else integer), text
            double = parse_double(text)
            score = ask(b"ZADD", b"z", b"INCR", text, b"m")
            if double is not None:
                assert score == double_text(double), text
            else:
                assert score in (b"value is not a valid float", b"syntax error"), text
            extended = parse_long_double(text)
            if isinstance(extended, float):
                expected = b"value is NaN or Infinity"
            else:
                expected = b"value is not a valid float" if extended is None else long_double_text(extended)
            assert ask(b"HINCRBYFLOAT", b"h", b"f", text) == expected, text
        for _ in range(1000):
            one, other = (
                b"%.*f" % (draw.randint(0, 20), draw.uniform(-1, 1) * 10 ** draw.randint(0, 20)) for _ in "ab"
            )
            terms = parse_long_double(one), parse_long_double(other)
            assert terms[0] is not None
            assert terms[1] is not None
            total = add_long_doubles(*terms)
            assert total is not None
            connection.demand(b"HSET", b"sum", b"f", one)
            assert connection.demand(b"HINCRBYFLOAT", b"sum", b"f", other) == long_double_text(total), (one, other)
        connection.close()
