"""Hashing many keys at once gives what hashing each gives."""

import numpy as np
import pytest

from orderlab.sim.kafka.producer import partition_for_key, partitions_for_rows
from orderlab.sim.mqtt.clients import numbered_names


@pytest.mark.parametrize("length", range(1, 14))
def test_rows_agree_with_single_keys(length):
    rows = np.random.default_rng(length).integers(0, 256, (50, length), dtype=np.uint8)
    assert partitions_for_rows(rows, 12).tolist() == [partition_for_key(row.tobytes(), 12) for row in rows]


def test_names_are_numbered():
    assert [row.tobytes() for row in numbered_names(b"p/", 12, 3)][9:] == [b"p/009", b"p/010", b"p/011"]
