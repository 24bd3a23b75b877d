"""What Spark says in a hundred lines, orderlab says in one, with the cure."""

import socket

import pytest

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.spark.session import START, explained, insist_on_reaching, insist_on_spark_home, patient
from orderlab.spark_sweeps.spark.tasks import MARK


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"Py4JJavaError ... Traceback\nspark_sweeps.tasks.Stopped: {MARK}<<out: the disk is full; free some>>\n\tat x",
         "out: the disk is full; free some"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
         "Spark on m: driver and executors have different Pythons; set PYSPARK_PYTHON"),
        ("java.io.InvalidClassException: org.apache.spark.rpc; local class incompatible: stream classdesc "
            "serialVersionUID",
         "different versions of Spark"),
        ("ModuleNotFoundError: No module named 'lupa'", "executors lack the module lupa; ship it with --py-files or "
            "--archives"),
        ("All masters are unresponsive! Giving up.", "cannot be reached; is it running"),
        ("Could not parse Master URL: 'locl[2]'", "no such master; write local[*]"),
        ("SparkException: When running with master 'yarn' either HADOOP_CONF_DIR or YARN_CONF_DIR must be set in the "
            "environment.",
         "set HADOOP_CONF_DIR or YARN_CONF_DIR"),
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("An exception was thrown from the Python worker:\nTraceback ...\nKeyError: 'x'", "KeyError: 'x'; its log is"),
        ("", "RuntimeError; its log is"),
    ],
)  # fmt: skip
def test_one_line_with_the_cure(said, told, tmp_path):
    line = explained(RuntimeError(said), "m", tmp_path / "spark.log")
    assert told in line
    assert "\n" not in line


def test_what_only_the_log_says_is_found(tmp_path):
    (tmp_path / "spark.log").write_text("ERROR StandaloneSchedulerBackend: All masters are unresponsive! Giving up.\n")
    assert "cannot be reached" in explained(RuntimeError("SparkContext was stopped"), "m", tmp_path / "spark.log")
    with (tmp_path / "spark.log").open("a") as log:
        log.write(f"{START}\nWARN calm\n")
    assert "SparkContext was stopped" in explained(
        RuntimeError("SparkContext was stopped"), "m", tmp_path / "spark.log"
    )


def test_a_master_that_nobody_answers_at_is_known_at_once():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        insist_on_reaching(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    for master, told in ((f"spark://127.0.0.1:{port}", "cannot be reached"), ("spark://here", "not an address")):
        with pytest.raises(InputError, match=told):
            insist_on_reaching(master)
    for elsewhere in (None, "local[2]", "yarn", "k8s://x"):
        insist_on_reaching(elsewhere)


def test_a_local_master_tries_again_as_a_cluster_does():
    given = ("local", "local[*]", "local[2]", "local[2,1]", "local-cluster[2,1,1024]", "spark://h:7077", "yarn")
    assert [patient(master) for master in given] == ["local[1,4]", "local[*,4]", "local[2,4]", *given[3:]]


def test_a_spark_home_without_a_spark_is_named(tmp_path):
    with pytest.raises(InputError, match="no bin/spark-submit there; correct it, or unset it"):
        insist_on_spark_home({"SPARK_HOME": str(tmp_path)})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    for environ in ({"SPARK_HOME": str(tmp_path)}, {"SPARK_HOME": ""}, {}):
        insist_on_spark_home(environ)
