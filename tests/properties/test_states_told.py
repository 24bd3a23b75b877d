"""What is told of large states: the part that changed."""

from __future__ import annotations

from orderlab.model.contracts.base import Call, brief
from orderlab.model.contracts.job_queue.promises import Job, Queue
from orderlab.properties.witness.telling import STATE_SHOWN, states_told

MANY = Queue(tuple(Job(f"j{number}") for number in range(40)))


def test_of_a_large_state_what_changed_is_told() -> None:
    taken = MANY.with_job(Job("j7", "leased", attempts=1))
    told = states_told([MANY], [taken])
    assert told == "Queue: jobs without Job(name='j7'); jobs with Job(name='j7', status='leased', attempts=1)"
    assert states_told([taken], [taken._replace(is_paused=True)]) == "Queue: is_paused=True"
    cleared = states_told([MANY], [MANY.without(*(f"j{number}" for number in range(20)))])
    assert cleared.endswith("and 17 more")
    assert len(cleared) < STATE_SHOWN


def test_small_states_and_several_are_told_whole() -> None:
    one, other = Queue((Job("a"),)), Queue((Job("a"),), is_paused=True)
    assert states_told([], [one]) == "Queue(jobs=(Job(name='a'),))"
    assert states_told([one], [other]) == "Queue(jobs=(Job(name='a'),), is_paused=True)"
    assert "; " in states_told([one], [one, other])


def test_of_a_long_call_the_ends_are_told() -> None:
    assert brief((1, 2)) == "(1, 2)"
    assert brief(tuple(range(9000))) == "(0, 1, 2, ... 8,996 more ..., 8999)"
    told = str(Call.of("post", posts=tuple((f"m{at}", "p") for at in range(8100)), ttl_ms=1))
    assert told == "post(posts=(('m0', 'p'), ('m1', 'p'), ('m2', 'p'), ... 8,096 more ..., ('m8099', 'p')), ttl_ms=1)"
