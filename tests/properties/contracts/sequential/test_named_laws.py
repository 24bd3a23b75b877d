"""Where a reply was lost, several states explain what was seen before: named is the law that is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from orderlab.model.contracts.base import Call
from orderlab.model.contracts.client_steps import REPLY_LOST, Begin, ClientStep, Fault
from orderlab.properties.engine.validation import run_of
from orderlab.properties.engine.witness import ContractReruns
from tests.properties.contracts.sequential.test_other_styles import broken_laws, store

LOST = Fault(REPLY_LOST)


def add(job: str, priority: int, trouble: Fault | None = None) -> Begin:
    call = Call.of("add", job=job, payload=f"p{job}", delay_ms=0, priority=priority, key="")
    return Begin(0, call, trouble)


TAKE = Begin(0, Call.of("take", token="w0", lease_ms=1000))


@pytest.mark.parametrize(
    ("slip", "steps", "named"),
    [
        ("the urgent ones last", [add("z0", 1), add("y0", 0, LOST), TAKE], {"order"}),
        ("the urgent ones last", [add("z0", 1), add("y0", 0), TAKE], {"order"}),
        ("", [add("z0", 1), add("y0", 0, LOST), TAKE], set()),
    ],
)
def test_the_law_is_that_which_is_broken_once_the_reply_is_heard(
    tmp_path: Path, slip: str, steps: list[ClientStep], named: set[str]
) -> None:
    """Had the job not come in, its being handed out would be of a job that is not there."""
    binding = store(tmp_path, "priority_streams", slip)
    reruns = ContractReruns(lambda: run_of(binding), [one.call for one in steps if isinstance(one, Begin)])
    trace = reruns.trace(steps)
    laws = ("order", "no-rerun", "no-loss", "exclusive-lease", "recovery", "specification")
    assert {law for law in laws if reruns.law_broken(trace, law)} == named


def test_what_was_lost_is_broken_by_its_own_law_alone(tmp_path: Path) -> None:
    """A retry that waits too long is stuck in the line; it is not lost, whatever became of the job behind it."""
    assert broken_laws(store(tmp_path, "delayed_hash", "a retry waits from the end of its lease"), 0.1) == {"order"}
