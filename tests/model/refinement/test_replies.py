"""What the replies to a save and to a release tell must be so: the broker acts on it before it fetches anything."""

from __future__ import annotations

from model.refinement import Account, Reply, Seen, Store, judge_release, judge_save
from model.refinement.saves import Save
from model.refinement.steps import Answer
from model.session import Lifetime, Message, Session, entry_of

LONG = Lifetime(60_000, 60_000)
STORE = Store(modulus=5, tells_each=True)
ONE, TWO = Message(1, LONG, 2), Message(2, LONG, 1)
HOLDING = Account(
    session=Session((entry_of(ONE, 1, 0, 1), entry_of(TWO, 2, 0, 2))), last_ids=frozenset({2}), last_token=2
)
LISTED = [Seen(1, 1, remaining_ms=60_000, token=1), Seen(2, 2, remaining_ms=60_000, token=2)]
TOLD = Reply(assigned=((1, 1, 1), (2, 2, 2)), told=((1, 1), (2, 2)))


def laws(judgement: object) -> list[str]:
    return [one.law for one in judgement.discrepancies]  # type: ignore[attr-defined]


def test_a_reply_tells_of_each_message_that_it_saved() -> None:
    save = Save((ONE, TWO), 5)
    assert laws(judge_save(Account(), save, TOLD, LISTED, STORE)) == []
    assert laws(judge_save(Account(), save, Reply(told=((1, 1),)), LISTED, STORE)) == ["packet-id"]
    assert laws(judge_save(Account(), save, Reply(told=()), LISTED, STORE._replace(tells_each=False))) == []


def test_a_reply_may_pass_over_what_is_not_kept_where_rows_need_not_match() -> None:
    dead = Message(3, Lifetime(0, 0), 1)
    save, some = Save((ONE, dead, TWO), 5), STORE._replace(tells_unkept=False)
    assert laws(judge_save(Account(), save, TOLD, LISTED, some)) == []
    assert laws(judge_save(Account(), save, TOLD, LISTED, STORE)) == ["packet-id"]
    assert laws(judge_save(Account(), save, TOLD._replace(told=((1, 1),)), LISTED, some)) == ["packet-id"]
    again = save._replace(is_repeated=True)
    assert laws(judge_save(HOLDING, again, TOLD, LISTED, some)) == []
    assert laws(judge_save(HOLDING, again, TOLD._replace(told=((1, 1),)), LISTED, some)) == ["all-or-nothing"]


def test_a_save_that_comes_again_is_answered_as_before_or_not_at_all() -> None:
    again = Save((ONE, TWO), 5, is_repeated=True)
    assert laws(judge_save(HOLDING, again, TOLD, LISTED, STORE)) == []
    assert laws(judge_save(HOLDING, again, Reply(told=()), LISTED, STORE)) == []
    swapped = Reply(assigned=((1, 2, 2), (2, 1, 1)), told=((2, 2), (1, 1)))
    assert laws(judge_save(HOLDING, again, swapped, LISTED, STORE)) == ["all-or-nothing"]
    assert laws(judge_save(HOLDING, again, Reply(told=((1, 1), (2, 2), (3, 3))), LISTED, STORE)) == ["all-or-nothing"]
    unkept = Reply(assigned=((1, None, None), (2, 2, 2)), told=((None, None), (2, 2)))
    assert laws(judge_save(HOLDING, again, unkept, LISTED, STORE._replace(tells_ids=True))) == ["all-or-nothing"]
    assert laws(judge_save(HOLDING, again, unkept, LISTED, STORE)) == []  # a reply that never tells identifiers


def test_of_a_message_that_is_gone_a_repeated_save_says_what_it_said_first_or_that_it_is_not_kept() -> None:
    dead = Message(3, Lifetime(0, 0), 1)
    first = ((1, 1), (None, None), (2, 2))
    again = Save((ONE, dead, TWO), 5, is_repeated=True, first=first)
    holding = HOLDING._replace(session=HOLDING.session._replace(queue=HOLDING.session.queue[1:]))

    def judged(*told: tuple[int | None, int | None]) -> list[str]:
        return laws(judge_save(holding, again, Reply(told=told), LISTED[1:], STORE))

    assert judged(*first) == []
    assert judged((None, None), (None, None), (2, 2)) == []
    assert judged((3, 3), (None, None), (2, 2)) == ["all-or-nothing"]  # acknowledged since; 3 is another message's
    assert judged((1, 1), (1, 1), (2, 2)) == ["all-or-nothing"]  # had expired when it came


def test_a_store_that_promises_its_reply_again_gives_it() -> None:
    promising = STORE._replace(answers_again=True)
    again = Save((ONE, TWO), 5, is_repeated=True, first=((1, 1), (2, 2)))
    assert laws(judge_save(HOLDING, again, TOLD, LISTED, promising)) == []
    for other in (Reply(told=()), Reply("refused", "STALE"), Reply("error", "ERR")):
        assert laws(judge_save(HOLDING, again, other, LISTED, promising)) == ["all-or-nothing"]
        assert laws(judge_save(HOLDING, again, other, LISTED, STORE)) == []
    unknown = again._replace(first=())
    assert laws(judge_save(HOLDING, unknown, Reply(told=()), LISTED, promising)) == []
    cleared = again._replace(is_stale=True)
    assert laws(judge_save(HOLDING, cleared, Reply("refused", "CLOSED"), LISTED, promising)) == []


def test_a_release_says_whether_the_message_was_there() -> None:
    released = [LISTED[0]._replace(kind="PUBREL"), LISTED[1]]
    answer = Answer(1, 1)
    assert laws(judge_release(HOLDING, answer, Reply(removed=1), released, STORE)) == []
    assert laws(judge_release(HOLDING, answer, Reply(removed=0), released, STORE)) == ["retransmission"]
    unknown = Answer(None, 4)
    assert laws(judge_release(HOLDING, unknown, Reply(removed=0), LISTED, STORE)) == []
    assert laws(judge_release(HOLDING, unknown, Reply(removed=1), LISTED, STORE)) == ["retransmission"]


def test_a_second_release_may_be_counted_or_not() -> None:
    once = judge_release(HOLDING, Answer(1, 1), Reply(removed=1), [LISTED[0]._replace(kind="PUBREL"), LISTED[1]], STORE)
    listed = [LISTED[0]._replace(kind="PUBREL"), LISTED[1]]
    for removed in (0, 1):
        assert laws(judge_release(once.account, Answer(1, 1), Reply(removed=removed), listed, STORE)) == []
