"""Identifiers of a batch: what may follow what, each case beside its nearest neighbour."""

from __future__ import annotations

from orderlab.model.contracts.session.refinement.packet_ids import (
    Assigned,
    judge_identifiers,
    judge_tokens,
    successors,
)


def laws(
    last: int, *given: int | None, taken: tuple[int, ...] = (), skip: tuple[int, ...] = (), modulus: int = 5
) -> list[str]:
    assigned = [Assigned(label, packet_id, False, True) for label, packet_id in enumerate(given, 1)]
    return sorted({one.law for one in judge_identifiers(frozenset((last,)), assigned, taken, skip, modulus)[1]})


def test_the_next_one_and_what_may_be_passed_over() -> None:
    assert successors(1, (), (), 5) == {2}
    assert successors(5, (), (), 5) == {1}
    assert successors(1, (2,), (3,), 5) == {2, 3, 4}
    assert successors(1, (1, 2, 3, 4, 5), (), 5) == {1, 2, 3, 4, 5}


def test_consecutive_identifiers_are_right_and_a_gap_is_not() -> None:
    assert laws(0, 1, 2, 3) == []
    assert laws(0, 1, 3) == ["counter"]
    assert laws(0, 2) == ["counter"]
    assert laws(3, 3) == ["counter"]


def test_after_the_last_comes_one() -> None:
    assert laws(5, 1) == []
    assert laws(5, 2) == ["counter", "packet-id"]
    assert laws(5, 6) == ["packet-id"]
    assert laws(5, 0) == ["packet-id"]


def test_a_live_identifier_is_skipped_and_never_given_again() -> None:
    assert laws(5, 2, taken=(1,)) == []
    assert laws(5, 1, taken=(1,)) == ["packet-id"]
    assert laws(4, 1, taken=(5,)) == []
    assert laws(4, 2, taken=(5,)) == ["counter"]


def test_one_that_has_just_become_free_may_be_skipped_or_not() -> None:
    assert laws(5, 1, skip=(1,)) == []
    assert laws(5, 2, skip=(1,)) == []


def test_within_a_batch_no_identifier_comes_twice_unless_its_first_message_is_cut() -> None:
    assert laws(0, 1, 2, 3, 1, modulus=3) == ["packet-id"]
    batch = [Assigned(1, 1, False, False), *(Assigned(n, n, False, True) for n in (2, 3)), Assigned(4, 1, False, True)]
    assert judge_identifiers(frozenset((0,)), batch, (), (), 3)[1] == []


def test_a_message_dead_on_arrival_may_have_used_one() -> None:
    batch = [Assigned(1, None, True, False), Assigned(2, None, False, True)]
    assert judge_identifiers(frozenset((0,)), batch, (), (), 5) == (frozenset((1, 2)), [])


def test_a_message_trimmed_at_once_of_which_nobody_was_told_may_have_used_one() -> None:
    def laws_of(*given: int | None, stays: bool) -> list[str]:
        batch = [
            *(Assigned(n, one, False, stays) for n, one in enumerate(given[:-1])),
            Assigned(9, given[-1], False, True),
        ]
        return [one.law for one in judge_identifiers(frozenset((0,)), batch, (), (), 5)[1]]

    assert laws_of(None, 1, stays=False) == laws_of(None, 2, stays=False) == []
    assert laws_of(None, None, 1, stays=False) == laws_of(None, None, 3, stays=False) == []
    assert laws_of(None, 3, stays=False) == laws_of(None, None, 4, stays=False) == ["counter"]
    assert laws_of(1, 1, stays=False) == ["counter"]  # the reply said that it used one
    assert laws_of(None, 1, stays=True) == ["counter"]


def test_many_messages_trimmed_at_once_are_soon_judged() -> None:
    batch = [Assigned(n, None, False, False) for n in range(20_000)]
    last_ids, found = judge_identifiers(frozenset((7,)), batch, (), (), 65535)
    assert (last_ids, found) == (frozenset(range(7, 20_008)), [])


def test_tokens_only_grow() -> None:
    assert judge_tokens(3, [(1, 4), (2, None), (3, 7), (4, 0)]) == (7, [])
    assert [one.law for one in judge_tokens(3, [(1, 4), (2, 4)])[1]] == ["counter"]
    assert [one.law for one in judge_tokens(3, [(1, 3)])[1]] == ["counter"]
