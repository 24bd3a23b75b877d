"""Sweeps of the tests: their files, and one Spark session for all tests of a process."""

import os

import pytest

from orderlab.spark_sweeps.runs.workers import PoolEngine, work_through
from orderlab.spark_sweeps.spark.session import SparkEngine, start_session

SCRUBBED = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """``local[2]``, without user interface, with small shuffles."""
    for name in SCRUBBED:
        os.environ.pop(name, None)
    small = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    session = start_session(
        "local[2]", tmp_path_factory.mktemp("spark") / "spark.log", "tests", small, only_hands_out=True
    )
    yield session
    session.stop()


@pytest.fixture
def sweep_file(tmp_path):
    """Write a sweep file with its output beside it."""

    def write(text, name="s.toml"):
        path = tmp_path / name
        path.write_text(f'output = "{tmp_path}/out"\n{text}')
        return path

    return write


class SharedPool(PoolEngine):
    """Its processes live from test to test."""

    def close(self):
        """Not yet."""


@pytest.fixture(scope="session")
def pool():
    """An engine maker: two processes."""
    engine = SharedPool(2)
    yield lambda folder: engine
    PoolEngine.close(engine)


class Backwards:
    """An engine in this process: the last run first, a file for each."""

    cores = 2

    def run(self, order, chunks, should_stop):
        """Every run on its own."""
        for number in sorted((int(number) for chunk in chunks for number in chunk), reverse=True):
            work_through(order, [number])
        return True

    def close(self):
        """Nothing to end."""


@pytest.fixture
def backwards():
    """An engine maker whose rows lie in another order, in other files."""
    return lambda folder: Backwards()


@pytest.fixture
def on_spark(spark, tmp_path):
    """An engine maker: the shared session."""
    return lambda folder: SparkEngine("local[2]", tmp_path / "spark.log", spark)
