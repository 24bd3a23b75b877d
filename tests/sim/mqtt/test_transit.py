"""What downlink records hold: taken once, whatever order they come in and however often they are read."""

import random

import numpy as np

from orderlab.sim.mqtt.connections import Transit


def test_each_record_gives_its_delivery_once():
    draw, transit, held, given = random.Random(3), Transit(), {}, 0
    for _ in range(3000):
        if draw.random() < 0.55:
            rows = [
                [draw.randrange(10**9), draw.randrange(10**6), draw.randrange(65_536), draw.randrange(10**6)]
                for _ in range(draw.randint(1, 30))
            ]
            records = transit.add(np.array(rows, np.int64))
            assert records == list(range(given, given + len(rows)))
            held.update(zip(records, rows, strict=True))
            given += len(rows)
        elif held:
            # Some twice, some taken long ago.
            asked = draw.choices(range(max(given - 400, 0), given), k=draw.randint(1, 40))
            assert all(
                transit.look(record) == (tuple(held[record][:2]) if record in held else None) for record in asked
            )
            assert all(transit.subscriber(record) == held.get(record, [0, 0])[1] for record in asked)
            found = [held.pop(record) for record in asked if record in held]
            assert transit.take(asked).tolist() == found


def test_what_has_been_taken_is_not_kept():
    transit = Transit()
    for _ in range(200):
        transit.take(transit.add(np.ones((1000, 4), np.int64)))
    assert len(transit._rows) < 20_000
    assert transit.look(0) is None
