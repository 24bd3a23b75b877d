"""The sizes beyond which a small collection changes its encoding, once and for good."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EncodingLimits:
    """The settings ``<type>-max-<encoding>-...`` of a node, with the defaults of Redis 7.0. CONFIG SET assigns them."""

    hash_max_listpack_entries: int = 512
    hash_max_listpack_value: int = 64
    """Bytes of the longest field or value."""
    zset_max_listpack_entries: int = 128
    zset_max_listpack_value: int = 64
    """Bytes of the longest member."""
    set_max_intset_entries: int = 512
