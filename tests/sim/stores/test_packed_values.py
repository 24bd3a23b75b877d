"""MessagePack of arguments and replies: what a script's `cmsgpack` reads and writes, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.packed_values import dump_msgpack, load_msgpack

AGAIN = b"return cmsgpack.pack(cmsgpack.unpack(ARGV[1]))"
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False).filter(lambda one: one % 1) | st.binary(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4) | st.dictionaries(st.text("ab", min_size=1), inner, min_size=1)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_a_value_comes_back(value: Any) -> None:
    assert load_msgpack(dump_msgpack(value)) == value


@given(PLAIN)
def test_a_script_reads_it_and_writes_it_again(value: Any) -> None:
    again = KernelBackend().execute(b"EVAL", AGAIN, b"0", dump_msgpack(value))
    assert load_msgpack(again) == value


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x92\x01", b"\xa5abc"])
def test_what_is_none_is_told(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no value|Missing bytes|Bad data"):
        load_msgpack(data)
