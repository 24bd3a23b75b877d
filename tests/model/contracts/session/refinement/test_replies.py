"""What the replies to a save and to a release tell must be so: the broker acts on it before it fetches anything."""

from __future__ import annotations

from orderlab.model.contracts.session.capabilities import Capabilities
from orderlab.model.contracts.session.refinement import (
    Account,
    ObservedMessage,
    Reply,
    judge_acknowledge,
    judge_release,
    judge_save,
    judge_stale_clear,
)
from orderlab.model.contracts.session.refinement.actions import ObservedAnswer, ObservedSave
from orderlab.model.contracts.session.spec import Lifetime, Message, Session, entry_of

LONG = Lifetime(60_000, 60_000)
STORE = Capabilities(modulus=5, tells_each=True)
ONE, TWO = Message(1, LONG, 2), Message(2, LONG, 1)
HOLDING = Account(
    session=Session((entry_of(ONE, 1, 0, 1), entry_of(TWO, 2, 0, 2))), last_ids=frozenset({2}), last_token=2
)
LISTED = [ObservedMessage(1, 1, remaining_ms=60_000, token=1), ObservedMessage(2, 2, remaining_ms=60_000, token=2)]
TOLD = Reply(assigned=((1, 1, 1), (2, 2, 2)), told=((1, 1), (2, 2)))


def laws(judgement: object) -> list[str]:
    return [one.law for one in judgement.discrepancies]  # type: ignore[attr-defined]


def test_a_reply_tells_of_each_message_that_it_saved() -> None:
    save = ObservedSave((ONE, TWO), 5)
    assert laws(judge_save(Account(), save, TOLD, LISTED, STORE)) == []
    assert laws(judge_save(Account(), save, Reply(told=((1, 1),)), LISTED, STORE)) == ["packet-id"]
    assert laws(judge_save(Account(), save, Reply(told=()), LISTED, STORE._replace(tells_each=False))) == []


def test_a_reply_may_pass_over_what_is_not_kept_where_rows_need_not_match() -> None:
    dead = Message(3, Lifetime(0, 0), 1)
    save, some = ObservedSave((ONE, dead, TWO), 5), STORE._replace(tells_unkept=False)
    assert laws(judge_save(Account(), save, TOLD, LISTED, some)) == []
    assert laws(judge_save(Account(), save, TOLD, LISTED, STORE)) == ["packet-id"]
    assert laws(judge_save(Account(), save, TOLD._replace(told=((1, 1),)), LISTED, some)) == ["packet-id"]
    again = save._replace(is_repeated=True)
    assert laws(judge_save(HOLDING, again, TOLD, LISTED, some)) == []
    assert laws(judge_save(HOLDING, again, TOLD._replace(told=((1, 1),)), LISTED, some)) == ["all-or-nothing"]


def test_a_save_that_comes_again_is_answered_as_before_or_not_at_all() -> None:
    again = ObservedSave((ONE, TWO), 5, is_repeated=True)
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
    again = ObservedSave((ONE, dead, TWO), 5, is_repeated=True, first=first)
    holding = HOLDING._replace(session=HOLDING.session._replace(queue=HOLDING.session.queue[1:]))

    def judged(*told: tuple[int | None, int | None]) -> list[str]:
        return laws(judge_save(holding, again, Reply(told=told), LISTED[1:], STORE))

    assert judged(*first) == []
    assert judged((None, None), (None, None), (2, 2)) == []
    assert judged((3, 3), (None, None), (2, 2)) == ["all-or-nothing"]  # acknowledged since; 3 is another message's
    assert judged((1, 1), (1, 1), (2, 2)) == ["all-or-nothing"]  # had expired when it came


def test_a_store_that_promises_its_reply_again_gives_it() -> None:
    promising = STORE._replace(answers_again=True)
    again = ObservedSave((ONE, TWO), 5, is_repeated=True, first=((1, 1), (2, 2)))
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
    answer = ObservedAnswer(1, 1)
    assert laws(judge_release(HOLDING, answer, Reply(removed=1), released, STORE)) == []
    assert laws(judge_release(HOLDING, answer, Reply(removed=0), released, STORE)) == ["retransmission"]
    unknown = ObservedAnswer(None, 4)
    assert laws(judge_release(HOLDING, unknown, Reply(removed=0), LISTED, STORE)) == []
    assert laws(judge_release(HOLDING, unknown, Reply(removed=1), LISTED, STORE)) == ["retransmission"]


def test_a_second_release_may_be_counted_or_not() -> None:
    once = judge_release(
        HOLDING, ObservedAnswer(1, 1), Reply(removed=1), [LISTED[0]._replace(kind="PUBREL"), LISTED[1]], STORE
    )
    listed = [LISTED[0]._replace(kind="PUBREL"), LISTED[1]]
    for removed in (0, 1):
        assert laws(judge_release(once.account, ObservedAnswer(1, 1), Reply(removed=removed), listed, STORE)) == []


FINDING = STORE._replace(tells_found=frozenset({"acknowledge", "release", "clear"}))
EXPIRED = HOLDING._replace(session=HOLDING.session._replace(queue=HOLDING.session.queue[1:]), fates=((1, "expired"),))


def test_a_store_that_promises_to_find_the_live_alone_does_not_count_what_has_expired() -> None:
    for judge, law in ((judge_acknowledge, "packet-id"), (judge_release, "retransmission")):
        for removed, promised, counting in ((0, [], []), (1, [law], [])):
            answered = ObservedAnswer(1, 1), Reply(removed=removed), LISTED[1:]
            assert laws(judge(EXPIRED, *answered, FINDING)) == promised
            assert laws(judge(EXPIRED, *answered, STORE)) == counting


def test_on_a_clock_that_runs_by_itself_it_may_have_expired_just_after_it_was_found() -> None:
    late = EXPIRED._replace(slack_ms=50)
    for judge in (judge_acknowledge, judge_release):
        assert laws(judge(late, ObservedAnswer(1, 1), Reply(removed=1), LISTED[1:], FINDING)) == []


def test_a_second_release_of_a_live_message_finds_it_where_that_is_promised() -> None:
    listed = [LISTED[0]._replace(kind="PUBREL"), LISTED[1]]
    once = judge_release(HOLDING, ObservedAnswer(1, 1), Reply(removed=1), listed, FINDING).account
    assert laws(judge_release(once, ObservedAnswer(1, 1), Reply(removed=1), listed, FINDING)) == []
    assert laws(judge_release(once, ObservedAnswer(1, 1), Reply(removed=0), listed, FINDING)) == ["retransmission"]


def test_the_end_of_an_earlier_session_changes_nothing_and_finds_nothing() -> None:
    assert laws(judge_stale_clear(HOLDING, Reply(removed=0), LISTED, FINDING)) == []
    assert laws(judge_stale_clear(HOLDING, Reply(removed=1), LISTED, FINDING)) == ["no-loss"]
    assert laws(judge_stale_clear(HOLDING, Reply(removed=1), LISTED, STORE)) == []  # it counts, and promises nothing
    assert laws(judge_stale_clear(HOLDING, Reply(removed=0), [], FINDING)) == ["no-loss"]


def test_a_save_that_comes_too_late_is_declined_by_the_word_that_is_promised() -> None:
    promising = STORE._replace(closed_word="CLOSED", older_word="STALE")
    stale, older = ObservedSave((ONE,), 5, is_stale=True), ObservedSave((ONE,), 5, is_repeated=True, is_older=True)
    words = Reply("refused", "CLOSED"), Reply("refused", "STALE"), Reply("error", "ERR gone"), Reply(told=())
    for save, right in ((stale, 0), (older, 1)):
        for at, reply in enumerate(words):
            wanted = [] if at == right else ["all-or-nothing"]
            assert laws(judge_save(HOLDING, save, reply, LISTED, promising)) == wanted
            assert laws(judge_save(HOLDING, save, reply, LISTED, STORE)) == []  # nothing is promised
            assert laws(judge_save(HOLDING, save, reply, LISTED, promising, faulted=True)) == []
    unsound = stale._replace(limit=0)  # may be refused for that in the first place
    assert laws(judge_save(HOLDING, unsound, words[2], LISTED, promising)) == []


def test_a_message_that_is_dead_on_arrival_does_not_fail_a_save() -> None:
    dead, fraction = Message(3, Lifetime(0, 0), 1), Message(4, Lifetime(0, 1000), 1)
    error, word = Reply("error", "ERR invalid expire time"), Reply("refused", "EXPIRED")
    assert laws(judge_save(HOLDING, ObservedSave((dead,), 5), error, LISTED, STORE)) == ["all-or-nothing"]
    assert laws(judge_save(HOLDING, ObservedSave((dead,), 5), word, LISTED, STORE)) == []
    assert laws(judge_save(HOLDING, ObservedSave((dead, Message(5, LONG, 1)), 5), error, LISTED, STORE)) == ["no-loss"]
    # MQTT has no such interval.
    assert laws(judge_save(HOLDING, ObservedSave((fraction,), 5), error, LISTED, STORE)) == []


def test_where_it_is_promised_to_be_told_an_error_tells_nothing() -> None:
    error = Reply("error", "the binding cannot read the reply")
    assert laws(judge_acknowledge(HOLDING, ObservedAnswer(None, 4), Reply(), LISTED, FINDING)) == ["packet-id"]
    assert laws(judge_acknowledge(HOLDING, ObservedAnswer(None, 4), Reply(), LISTED, STORE)) == []
    for judge, law in ((judge_acknowledge, "packet-id"), (judge_release, "retransmission")):
        for packet_id, promised in ((4, [law]), (6, [])):  # 6 is no identifier here
            unknown = ObservedAnswer(None, packet_id), error, LISTED
            assert laws(judge(HOLDING, *unknown, FINDING)) == promised
            assert laws(judge(HOLDING, *unknown, STORE)) == []
            assert laws(judge(HOLDING, *unknown, FINDING, faulted=True)) == []
    for telling_nothing in (error, Reply()):
        assert laws(judge_stale_clear(HOLDING, telling_nothing, LISTED, FINDING)) == ["no-loss"]
    assert laws(judge_stale_clear(HOLDING, error, LISTED, STORE)) == []
