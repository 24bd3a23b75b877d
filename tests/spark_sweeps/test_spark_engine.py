"""What the engine on Spark tells while it waits."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from orderlab.spark_sweeps.spark.session import PATIENCE_S, SparkEngine


class Blocks:
    def __init__(self, number):
        self.number = number

    def size(self):
        return self.number


def session(master, executors):
    """As much of a session as the watch asks for; the driver has blocks of its own."""
    java = SimpleNamespace(sc=lambda: SimpleNamespace(getExecutorMemoryStatus=lambda: Blocks(1 + executors[0])))
    context = SimpleNamespace(master=master, defaultParallelism=2, _jsc=java)
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=lambda key, default: default))


@pytest.mark.parametrize(
    ("master", "granted_at", "lines"),
    [
        ("spark://host:7077", None, 1),
        ("spark://host:7077", 10.0, 0),
        ("local-cluster[1,1,512]", None, 1),
        ("local[2]", None, 0),
    ],
)
def test_a_cluster_that_grants_no_executor_is_told_once(master, granted_at, lines, monkeypatch):
    now, executors, told = [0.0], [0], []
    monkeypatch.setattr("orderlab.spark_sweeps.spark.session.time.monotonic", lambda: now[0])
    engine = SparkEngine(master, Path("spark.log"), session(master, executors), told.append)
    while now[0] < 3 * PATIENCE_S:
        engine._watch_for_executors()
        now[0] += 5.0
        if granted_at is not None and now[0] >= granted_at:
            executors[0] = 1
    assert len(told) == lines
    for line in told:
        assert "no executor after 30 s" in line
        assert "spark.executor.memory" in line
        assert "\n" not in line
