"""Strategies for the steps of a session store: messages with any interval, payload and batch size; faults; clients."""

from __future__ import annotations

from hypothesis import strategies as st

from orderlab.model.contracts.session.spec import LONGEST_INTERVAL_S
from orderlab.model.protocol.packet_id import MODULUS
from orderlab.sim.stores.trace_faults import NODE_CONDITIONS, PLANTED

HOSTILE_CLIENTS: tuple[bytes, ...] = (
    b"}x",
    b"{}",
    b"{",
    b"}",
    b"",
    b"{a}{b}",
    b"a}b{c",
    b"{}x",
    "ü€😀".encode(),
    b"with space:and:colons_messages",
    b"%",
    b"%7D",
    b"\x01\x7f\n\r",
    b"x" * MODULUS,
)
"""Client identifiers that MQTT allows, as they break hash tags, templates and buffers; the empty one a server
replaces."""

_LETTERS = "cabdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _spelled(letters: str, **sizes: int) -> st.SearchStrategy[bytes]:
    """Text of these letters; it shrinks to the first of them, not to the one with the smallest code."""
    return st.lists(st.sampled_from(letters), **sizes).map(lambda chosen: "".join(chosen).encode())  # type: ignore[arg-type]


ordinary_clients = _spelled(_LETTERS, min_size=1, max_size=23)
"""What every server must accept (MQTT-3.1.3-5)."""
allowed_clients = st.one_of(
    ordinary_clients,
    st.text(st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40).map(
        str.encode
    ),
)
"""Any UTF-8 string without U+0000; the empty one asks the server for a name (MQTT 5.0, 1.5.4, 3.1.3.1)."""
clients = st.one_of(
    ordinary_clients,
    allowed_clients,
    # what breaks hash tags, templates, parsers and buffers
    st.one_of(_spelled("}{c:_%", max_size=8), st.sampled_from(HOSTILE_CLIENTS), st.binary(max_size=12)),
)

intervals_ms = st.one_of(
    st.none(),
    st.sampled_from([1000, 2000, 3000, 5000]),
    st.integers(1, 30).map(lambda seconds: seconds * 1000),
    st.sampled_from([0, LONGEST_INTERVAL_S * 1000, (1 << 31) * 1000, ((1 << 31) - 1) * 1000]),
)
"""Message Expiry Intervals in ms: absent, ordinary, and the edges of what MQTT allows."""

forbidden_intervals_ms = st.sampled_from([1, 500, 1500, -1, -1000, 1 << 62, 1e15, 1e300])
"""What MQTT cannot express: a store must stay whole, and owes nothing else."""

ordinary_intervals_ms = st.one_of(st.none(), st.sampled_from([1000, 2000, 3000, 5000]))

payload_bodies = st.one_of(
    st.just(b""),
    st.binary(max_size=12),
    st.sampled_from([b"\x00", b"\xff" * 9, b'"\\', b"\r\n$-1\r\n", b"{}", b"same", b"nil", b"P" * 300]),
)

limits = st.one_of(st.sampled_from([1, 2, 3, 4, 100]), st.sampled_from([0, -1, MODULUS, MODULUS + 1]))
"""Those outside 1..65535 are for stores that promise to decline them."""
ordinary_limits = st.sampled_from([1, 2, 3, 4, 100])
page_sizes = st.one_of(st.none(), st.integers(0, 4), st.just(1000))
waits_ms = st.one_of(
    st.sampled_from([1, 499, 500, 999, 1000, 1001, 2000]),
    st.sampled_from([60_000, 3_600_000, 700_000_000, 40_000_000_000]),
)
fault_numbers = st.integers(0, len(NODE_CONDITIONS) - 1)
"""Of a condition of the node: which there are is for the backend to say."""
found_types = st.sampled_from(sorted(PLANTED))
