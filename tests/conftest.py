"""What every test may take for granted of its process."""

from __future__ import annotations

import gc
import os
import secrets
import signal

import pytest
from hypothesis import settings

from orderlab import exit_codes

os.environ.setdefault("ORDERLAB_PROGRESS", "0")  # on a busy machine anything may take longer than ten seconds
os.environ["ORDERLAB_CACHE"] = "0"  # each test judges
settings.register_profile("same-examples", derandomize=True, database=None, deadline=None)
settings.register_profile("fresh-seeds", max_examples=1000, database=None, deadline=None, print_blob=True)
# `make test` tries the same examples for the same text on any machine; `make exhaustive` sets this and searches with a
# fresh seed.
IS_FRESH = os.environ.get("ORDERLAB_FRESH_EXAMPLES") == "1"
settings.load_profile("fresh-seeds" if IS_FRESH else "same-examples")

exit_codes.may_end_by_itself = lambda arguments: False
"""A command that a test calls goes on in this process."""


@pytest.fixture
def smallest_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a sequential contract is judged in the smallest scopes and on walks alone. What is larger is tried
    by the tests of the contracts and of the search."""
    from orderlab.model.contracts.sequential import SequentialTerms
    from orderlab.properties.engine import validation

    scopes_at = SequentialTerms.scopes_at
    monkeypatch.setattr(
        SequentialTerms, "scopes_at", lambda terms, effort: [one for one in scopes_at(terms, effort) if one.is_smallest]
    )
    monkeypatch.setattr(validation, "crowd", lambda make, search, counts_lua: None)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed of a search with fresh examples here, so that it can be told, and workers have the same."""
    if IS_FRESH and config.getoption("hypothesis_seed") is None:
        given = getattr(config, "workerinput", {}).get("fresh_seed")
        config.option.hypothesis_seed = str(secrets.randbelow(2**32)) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Hand a worker of pytest-xdist the seed."""
    node.workerinput["fresh_seed"] = node.config.getoption("hypothesis_seed")  # type: ignore[attr-defined]


def pytest_report_header(config: pytest.Config) -> str:
    """Which examples generated tests try."""
    seed = config.getoption("hypothesis_seed")
    if seed is None:
        return "generated tests: the same examples on any machine"
    return f"generated tests: seed {seed} (again: --hypothesis-seed={seed})"


# A shell without job control starts what it puts into the background with Ctrl-C ignored, and children inherit that:
# the tests that end a program by Ctrl-C would wait for ever, or find that it has gone on to its end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Look seldom for cyclic garbage: a tenth of the suite's time went into passing over what is kept to the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 20)
