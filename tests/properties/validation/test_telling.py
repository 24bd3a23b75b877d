"""Long runs and large states as they are told: nothing that differs is left out, and no step is lost."""

from __future__ import annotations

import random

from orderlab.properties.witness.telling import ALIKE_MIN, STATE_SHOWN, changes_told, left_out, places_told


def test_steps_that_say_the_same_are_told_by_the_first_and_the_last() -> None:
    adds = [(f"client 1: add(job='j{number}', priority=-1)", "replied 'added'") for number in range(400)]
    found = list(places_told([*adds, ("the clock moves on by 500 ms", ""), ("client 1: take()", "replied 'j1'")]))
    assert found == [0, range(1, 399), 399, 400, 401]
    assert left_out(range(1, 399)) == "2 to 399: 398 steps like these"


def test_steps_that_differ_in_more_are_all_told() -> None:
    said = [(f"client 1: {'add' if number % 2 else 'take'}()", "") for number in range(100)]
    assert list(places_told(said)) == list(range(100))
    answered = [("client 1: take()", "an error" if number == 15 else "replied nil") for number in range(2 * ALIKE_MIN)]
    assert 15 in list(places_told(answered)), "the one that is answered otherwise is no step like the others"
    assert list(places_told([("x", "")] * (ALIKE_MIN - 1))) == list(range(ALIKE_MIN - 1))


def test_every_step_is_told_or_left_out_once() -> None:
    draw = random.Random(1)
    for _ in range(200):
        said = [(draw.choice("ab"), "") for _ in range(draw.randrange(5)) for _ in range(draw.randrange(60))]
        places = [at for place in places_told(said) for at in (place if isinstance(place, range) else [place])]
        assert places == list(range(len(said)))


def test_a_state_is_told_where_it_changed() -> None:
    jobs = [f"Job(name='j{number}', status='waiting')" for number in range(40)]
    states = [f"Queue(jobs=({', '.join(jobs[:count])}))" for count in (1, 1, 39, 40)]
    states.append(states[-1].replace("name='j20', status='waiting'", "name='j20', status='dead'"))
    first, same, many, more, changed = changes_told(states)
    assert (first, same) == (states[0], "")
    assert len(many) < STATE_SHOWN + 10
    assert "Job(name='j39', status='waiting')" in more
    assert "j37" not in more
    assert "Job(name='j20', status='dead" in changed
    assert "j21" not in changed
