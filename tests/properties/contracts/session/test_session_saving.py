"""Batches that come again: which of them a store must take for older than its producer's last."""

from __future__ import annotations

from pathlib import Path

from orderlab.model.contracts.session.traces import Publication, Retry, Save, Step
from orderlab.properties.contracts.session.handlers import SessionRun
from orderlab.sim.redis.backends import KernelBackend
from orderlab.sim.stores.binding.loader import load_binding
from orderlab.sim.stores.bound import BoundStore

PENDING = Path(__file__).parents[4] / "lua" / "pending"
EARLIER = Retry(older=True)


def save(*labels: int) -> Save:
    return Save(tuple(Publication(label, b"<%d>" % label) for label in labels))


def told(steps: tuple[Step, ...], find: bytes = b"", replace: bytes = b"") -> tuple[list[str], bool]:
    """What is said, and whether the store was asked in the last step."""
    binding = load_binding(PENDING)
    (source,) = (one.source for one in binding.scripts if one.name == "add.lua")
    changed = binding.with_sources({"add.lua": source.replace(find, replace)}) if find else binding
    run = SessionRun(BoundStore(changed, KernelBackend()), (b"c",))
    reports = [run.perform(step) for step in steps]
    return [one.text for report in reports for one in report.discrepancies], reports[-1].result is not None


def test_a_batch_before_the_last_is_older() -> None:
    assert told((save(1), save(2), EARLIER)) == ([], True)


def test_a_store_that_takes_it_for_the_last_is_caught() -> None:
    found, _ = told((save(1), save(2), EARLIER), b"redis.status_reply('STALE')", b"{tonumber(given), size}")
    assert any("is promised the word STALE" in text for text in found)


def test_a_batch_before_one_without_messages_is_not() -> None:
    assert told((save(1), save(), EARLIER)) == ([], False)
    assert told((save(1), save(2), save(), EARLIER)) == ([], False)
