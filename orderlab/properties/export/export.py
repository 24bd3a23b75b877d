"""The forms by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orderlab.properties.export.on_server import Plan
from orderlab.properties.export.pytest_file import pytest_file, regression_test
from orderlab.properties.export.redis_cli import redis_cli_script
from orderlab.properties.export.sequence import mermaid, svg
from orderlab.properties.export.states import states
from orderlab.properties.export.transcript import Transcript

RUNNING: Mapping[str, Callable[[Plan], str]] = {
    "pytest": pytest_file,
    "regression": regression_test,
    "redis-cli": redis_cli_script,
}
"""Those that run on a server."""
TELLING: Mapping[str, Callable[[Transcript], str]] = {"svg": svg, "mermaid": mermaid, "states": states}
"""Those that only tell, of stores and of anything else with steps."""


def write_plan(form: str, plan: Plan) -> str:
    """The text of one form for a trace on a store."""
    return RUNNING[form](plan) if form in RUNNING else TELLING[form](plan.transcript)


def write_transcript(form: str, told: Transcript) -> str:
    """The text of a form that only tells."""
    return TELLING[form](told)
