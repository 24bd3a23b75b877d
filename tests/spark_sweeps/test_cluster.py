"""A real standalone cluster on loopback: master, two workers, packaged code; one worker dies halfway, and nothing
changes.

Deselected unless asked for: `make cluster-test`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pyspark
import pytest

from orderlab.spark_sweeps.packaging import code_zip, environment_archive
from orderlab.spark_sweeps.spark.session import java_home
from tests.spark_sweeps.conftest import SCRUBBED

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[2]
BIN = Path(pyspark.__file__).parent / "bin"
SWEEP = """
system = "tbmq-p2p"
seed = 3
[base]
publishers = 200
rate = 10
[axes]
lettuce_batch = [1, 10, 100]
flush_ms = [1, 3, 9]
brokers = [1, 2]
[replications]
count = 4
"""


def free_port():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]


def environment():
    """Without this checkout on any path: executors have only what is shipped."""
    kept = {name: value for name, value in os.environ.items() if name not in (*SCRUBBED, "PYTHONPATH")}
    return {**kept, "JAVA_HOME": java_home(kept), "SPARK_LOCAL_IP": "127.0.0.1"}


def until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not after {seconds} s"
        time.sleep(0.2)
    return found


@pytest.fixture
def cluster(tmp_path):
    """(address, worker processes)"""
    port, page = free_port(), free_port()
    started = []

    def start(name, *arguments):
        with open(tmp_path / f"{name}.log", "w") as log:
            command = [str(BIN / "spark-class"), *arguments]
            process = subprocess.Popen(
                command, env=environment(), stdout=log, stderr=log, cwd=tmp_path, start_new_session=True
            )
        started.append(process)
        return process

    start(
        "master",
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--webui-port",
        str(page),
    )
    address = f"spark://127.0.0.1:{port}"

    def alive():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                return json.load(answer)["aliveworkers"]
        except (OSError, ValueError, KeyError):
            return -1

    until(lambda: alive() >= 0, 120, "master")
    workers = [
        start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0",
              "-c", "1", "-m", "1g", "-d", str(tmp_path / f"worker-{number}"), address)
        for number in range(2)
    ]  # fmt: skip
    until(lambda: alive() == 2, 120, "two workers")
    yield address, workers
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait()


def test_a_sweep_survives_the_death_of_a_worker(cluster, tmp_path):
    address, workers = cluster
    code = code_zip(tmp_path / "orderlab.zip")
    archive = environment_archive(tmp_path / "environment.tar.gz")
    file = tmp_path / "sweep.toml"
    file.write_text(f'output = "{tmp_path}/on-cluster"\n{SWEEP}')
    command = [
        str(BIN / "spark-submit"), "--master", address, "--py-files", str(code), "--archives", f"{archive}#environment",
        "--conf", "spark.executor.memory=700m", "--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR",
        str(ROOT / "spark_sweeps" / "main.py"), str(file), "--json",
    ]  # fmt: skip
    told = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "./environment/bin/python"}
    with open(tmp_path / "submit.log", "w") as log:
        driver = subprocess.Popen(
            command, env={**environment(), **told}, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    rows = tmp_path / "on-cluster" / "rows"

    def half_done():
        assert driver.poll() is None, (tmp_path / "submit.log").read_text()[-3000:]
        return (
            rows.is_dir()
            and sum(int(name.split(".")[1].split("-")[0]) for name in os.listdir(rows) if name[0] != ".") >= 8
        )

    try:
        until(half_done, 600, "some rows")
        os.killpg(workers[0].pid, signal.SIGKILL)
        out, _ = driver.communicate(timeout=900)
    finally:
        driver.kill()
    assert driver.returncode == 0, (tmp_path / "submit.log").read_text()[-3000:]
    on_cluster = json.loads(out.splitlines()[-1])
    local = subprocess.run(
        [sys.executable, str(ROOT / "spark_sweeps" / "main.py"), str(file), "--master", "local[2]", "--output",
         str(tmp_path / "local"), "--json"],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert local.returncode == 0, local.stderr
    alone = json.loads(local.stdout)
    assert on_cluster["counts"] == alone["counts"] == {"rows": 72, "failed": 0, "violated": 0}
    assert on_cluster["digest"] == alone["digest"]
