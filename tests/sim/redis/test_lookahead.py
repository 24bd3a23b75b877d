"""To look ahead changes nothing, whatever it is given; what is no keyspace or no pipeline is refused."""

import random

import pytest

from orderlab.sim.redis import lookahead
from orderlab.sim.redis.lookahead import KEYS_MIN, look_ahead


@pytest.fixture(name="prefetch")
def _prefetch():
    if lookahead._machine_code is None:
        pytest.skip("there is no machine code; run python -m orderlab.sim.native.build")
    return lookahead._machine_code.prefetch


def keyspace(draw, size):
    """One that has grown, lost keys and got others."""
    data = {b"key:%d" % draw.randrange(10**6): object() for _ in range(size)}
    for key in draw.sample(sorted(data), len(data) // 3):
        del data[key]
    data.update((b"{k}%d" % number, number) for number in range(size // 5))
    return data


def command(draw, keys):
    known = [*keys, b"", b"key:none", b"x" * 300]
    count = draw.choice((b"0", b"1", b"2", b"9", b"10", b"-1", b"", b"99999999999999999999", b"\xff"))
    words = [b"EVALSHA", b"0" * 40, count, *(draw.choice(known) for _ in range(draw.randint(0, 12)))]
    return draw.choice((words, words[: draw.randint(0, 4)], tuple(words), [*words, None, 7, "text"]))


@pytest.mark.parametrize("size", [0, 1, 7, 100, 300, 70_000], ids=str)
def test_it_changes_nothing(prefetch, size):
    draw = random.Random(size)
    data = keyspace(draw, size)
    before, keys = dict(data), draw.sample(sorted(data), min(len(data), 50))
    for _ in range(300):
        commands = [command(draw, keys) for _ in range(draw.choice((0, 1, 40, 300)))]
        told = [list(each) for each in commands]
        prefetch(data, commands)
        assert [list(each) for each in commands] == told
    assert data == before


def test_keys_that_are_texts_or_nothing_at_all_are_passed_over(prefetch):
    prefetch({"a": 1, "b": 2}, [[b"EVALSHA", b"", b"1", b"a"]])
    prefetch({}, [[b"EVALSHA", b"", b"1", b"a"]])
    prefetch({b"a": 1, 7: 2, None: 3, "b": 4}, [[b"EVALSHA", b"", b"9", b"a", 7, None, "b"], [], None])


@pytest.mark.parametrize("given", [(), ({},), ([], {}), ({}, ()), (None, []), ({}, [], 1)], ids=repr)
def test_what_is_no_keyspace_or_no_pipeline_is_refused(prefetch, given):
    with pytest.raises(TypeError):
        prefetch(*given)


def test_small_keyspaces_and_single_commands_are_left_alone(monkeypatch):
    asked = []
    monkeypatch.setattr(lookahead, "_machine_code", type("Code", (), {"prefetch": staticmethod(lambda *given: asked.append(given))}))
    call, large = [b"EVALSHA", b"", b"1", b"a"], dict.fromkeys(range(KEYS_MIN))
    look_ahead({}, [call, call])
    look_ahead(large, [call])
    assert asked == []
    look_ahead(large, [call, call])
    assert asked == [(large, [call, call])]
    monkeypatch.setattr(lookahead, "_machine_code", None)
    look_ahead(large, [call, call])
    assert len(asked) == 1
