"""Random streams: reproducible, independent of each other and of the order in which they are asked for."""

from __future__ import annotations

from orderlab.sim.engine.random_streams import RandomStreams


def test_a_stream_depends_on_seed_and_name_only() -> None:
    one, two = RandomStreams(7), RandomStreams(7)
    two.stream("other").random()
    assert [one.stream("redis").random() for _ in range(3)] == [two.stream("redis").random() for _ in range(3)]
    assert RandomStreams(7).stream("redis").random() != RandomStreams(8).stream("redis").random()
    assert RandomStreams(7).stream("redis").random() != RandomStreams(7).stream("kafka").random()


def test_the_draws_are_pinned() -> None:
    assert RandomStreams(1).stream("network").randrange(10**6) == RandomStreams(1).stream("network").randrange(10**6)
    assert RandomStreams(1).vector_stream("network").integers(10**6, size=3).tolist() == (
        RandomStreams(1).vector_stream("network").integers(10**6, size=3).tolist()
    )
