"""Packet-identifier arithmetic, exhaustively for small moduli and at the wrap of the real one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orderlab.model.protocol.packet_id import MODULUS, decode, encode, following

MODULI = range(1, 8)


@dataclass(frozen=True)
class Ambiguity:
    """Two sequence numbers of one window that share an identifier."""

    known: int
    behind: int
    ahead: int
    one: int
    other: int


def ambiguity(modulus: int, window: int) -> Ambiguity | None:
    """Exhaustive proof obligation of `decode`: in no window of this many numbers do two share an identifier.

    Identifiers repeat with period `modulus`, so reference points 1..2*modulus stand for all.
    """
    for behind in range(window):
        ahead = window - 1 - behind
        for known in range(1, 2 * modulus + 1):
            seen: dict[int, int] = {}
            for sequence in range(max(1, known - behind), known + ahead + 1):
                other = seen.setdefault(encode(sequence, modulus), sequence)
                if other != sequence:
                    return Ambiguity(known, behind, ahead, other, sequence)
    return None


@pytest.mark.parametrize("modulus", MODULI)
def test_following_is_the_identifier_of_the_next_sequence_number(modulus: int) -> None:
    for sequence in range(1, 3 * modulus):
        assert following(encode(sequence, modulus), modulus) == encode(sequence + 1, modulus)


def test_the_wrap() -> None:
    assert [following(0), following(65534), following(65535)] == [1, 65535, 1]
    assert [encode(n) for n in (65534, 65535, 65536)] == [65534, 65535, 1]
    assert decode(1, known=65535, behind=0, ahead=10) == 65536
    assert decode(65535, known=65537, behind=10, ahead=0) == 65535


@pytest.mark.parametrize("modulus", MODULI)
def test_decode_finds_every_number_of_every_window(modulus: int) -> None:
    for behind in range(modulus):
        ahead = modulus - 1 - behind
        for known in range(1, 3 * modulus):
            for sequence in range(max(1, known - behind), known + ahead + 1):
                assert decode(encode(sequence, modulus), known, behind, ahead, modulus) == sequence


def test_decode_outside_the_window_finds_nothing() -> None:
    assert decode(5, known=1, behind=0, ahead=3, modulus=8) is None


@pytest.mark.parametrize("modulus", MODULI)
def test_a_window_of_the_modulus_is_the_largest_that_can_be_told_apart(modulus: int) -> None:
    assert ambiguity(modulus, window=modulus) is None
    assert ambiguity(modulus, window=modulus + 1) is not None


def test_the_counterexample_names_two_numbers_with_one_identifier() -> None:
    assert ambiguity(4, window=5) == Ambiguity(known=1, behind=0, ahead=4, one=1, other=5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: following(-1),
        lambda: following(MODULUS + 1),
        lambda: encode(0),
        lambda: decode(0, 1, 1, 1),
        lambda: decode(1, 1, 4, 4, modulus=8),
    ],
)
def test_what_is_no_identifier_is_refused(call: object) -> None:
    with pytest.raises(ValueError, match=r"outside|begin with 1|told apart"):
        call()  # type: ignore[operator]
