"""Client code that `recorded` records: rq's workers and who enqueues, on the server that ``REDIS_PORT`` names.

``produce COUNT``: enqueue so many jobs, each again until the server has it. ``work``: work until ``STOP`` is there.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import redis

STOP, QUEUE = "stop", "default"
JOB = "tests.laboratory.conformance.rq_program.count"
PAUSE_S = 0.01
WORK_S = 60.0
"""After which a worker gives up: nobody has told it to stop."""


def connection() -> Any:
    """To the server, through the proxy."""
    return redis.Redis(port=int(os.environ["REDIS_PORT"]), protocol=2)


def count(job: str) -> None:
    """What a job does: an effect that can be counted."""
    while True:
        try:
            connection().incr(f"done:{job}")
            return
        except redis.RedisError:
            time.sleep(PAUSE_S)


def produce(jobs: int) -> None:
    """Enqueue jobs. One whose enqueueing failed is not tried again: it may have been enqueued."""
    from rq import Queue

    for number in range(jobs):
        name = f"job{number}"
        try:
            Queue(QUEUE, connection=connection()).enqueue(JOB, name, job_id=name)
        except redis.RedisError:
            print(f"unsure {name}", flush=True)
        time.sleep(PAUSE_S)
    while True:
        try:
            connection().set(STOP, 1)
            return
        except redis.RedisError:
            time.sleep(PAUSE_S)


def work() -> None:
    """Work in bursts until all was enqueued and taken."""
    import logging

    from rq import Queue, SimpleWorker

    logging.disable(logging.CRITICAL)
    until_s = time.monotonic() + WORK_S
    while time.monotonic() < until_s:
        try:
            ended = bool(connection().exists(STOP))
            worker = SimpleWorker([Queue(QUEUE, connection=connection())], connection=connection())
            worker.work(burst=True, logging_level="CRITICAL")
            if ended:
                return
        except redis.RedisError:
            pass
        time.sleep(PAUSE_S)


def together(jobs: str, workers: str) -> int:
    """One that enqueues, and workers, each a process."""
    import subprocess

    me = [sys.executable, "-m", "tests.laboratory.conformance.rq_program"]
    children = [
        subprocess.Popen([*me, "produce", jobs]),
        *(subprocess.Popen([*me, "work"]) for _ in range(int(workers))),
    ]
    return max(child.wait() for child in children)


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    if task == "produce":
        produce(int(arguments[0]))
    elif task == "work":
        work()
    else:
        sys.exit(together(*arguments))
