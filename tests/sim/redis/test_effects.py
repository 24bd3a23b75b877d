"""What a command did, as a value: it goes from process to process."""

from __future__ import annotations

import pickle

from orderlab.sim.redis.node_state import Effect


def test_an_effect_is_read_back_as_it_was_written() -> None:
    effect = Effect((b"SET", b"a", b"1"), (b"a",), (b"a",), True, 1, b"OK", 3, 2)
    assert pickle.loads(pickle.dumps(effect)) == effect
