"""rq: a job that is ``unique`` is enqueued once."""

from __future__ import annotations

from typing import Any

from rq import Queue
from rq.exceptions import DuplicateJobError

from orderlab.clients import scenario


@scenario(clients=2)
def unique(redis: Any, at: Any) -> None:
    try:
        Queue("nightly", connection=redis).enqueue("builtins.print", job_id="backup", unique=True)
    except DuplicateJobError:
        return
    at.once("backup")
