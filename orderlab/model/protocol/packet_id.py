"""Packet identifiers: 1..65535, wrapping from 65535 to 1, and the unbounded sequence numbers behind them.

MQTT gives a packet 16 bits without zero (MQTT-2.2.1-3). A store that numbers its messages 1, 2, 3, … for ever keeps
order where identifiers wrap. Sequence number n carries identifier (n - 1) mod M + 1; `decode` finds n again from the
identifier and any sequence number nearby.
"""

from __future__ import annotations

TWO_BYTES_MAX = 65535
"""The largest Two Byte Integer of MQTT (1.5.2): identifiers, Receive Maximum, Keep Alive, lengths of texts."""
MODULUS = TWO_BYTES_MAX
"""Number of identifiers. Small-scope exploration takes a smaller one; zero is never an identifier."""


def following(packet_id: int, modulus: int = MODULUS) -> int:
    """The identifier after this one; after `modulus` comes 1. Zero, "none given yet", is followed by 1."""
    _check(packet_id, modulus, lowest=0)
    return packet_id % modulus + 1


def encode(sequence: int, modulus: int = MODULUS) -> int:
    """The identifier of a sequence number (1, 2, 3, …)."""
    if sequence < 1:
        raise ValueError(f"sequence number {sequence}: they begin with 1")
    return (sequence - 1) % modulus + 1


def decode(packet_id: int, known: int, behind: int, ahead: int, modulus: int = MODULUS) -> int | None:
    """The sequence number with this identifier among known-behind..known+ahead; None if there is none.

    The answer is the right one if the true sequence number lies in that window and the window has at most `modulus`
    numbers: its tests search for a counterexample to just that. Raises ValueError for a window that is larger.
    """
    _check(packet_id, modulus)
    if behind < 0 or ahead < 0 or behind + ahead + 1 > modulus:
        raise ValueError(f"window of {behind} behind and {ahead} ahead: at most {modulus} numbers can be told apart")
    lowest = max(1, known - behind)
    candidate = lowest + (packet_id - encode(lowest, modulus)) % modulus
    return candidate if candidate <= known + ahead else None


def _check(packet_id: int, modulus: int, lowest: int = 1) -> None:
    if not lowest <= packet_id <= modulus:
        raise ValueError(f"packet identifier {packet_id} is outside {lowest}..{modulus}")
