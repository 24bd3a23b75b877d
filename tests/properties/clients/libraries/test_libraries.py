"""Published libraries in every order, and what was found in them told again on a real server.

Right versions must hold, to the end of the search; those with a defect must be violated, by the law that it breaks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")

from orderlab.sim.live import ServerProcess

HERE = Path(__file__).resolve().parent
FINDINGS = HERE.parents[3] / "notes" / "findings"

_spec = importlib.util.spec_from_file_location("install_libraries", HERE / "install.py")
assert _spec is not None
assert _spec.loader is not None
install = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(install)

REDIS_PY = ""
HOLDS = ""
"""The law that a right library breaks."""

CASES = [
    (REDIS_PY, "redis_py_race.py:lock", 0, HOLDS),
    (REDIS_PY, "redis_py_race.py:reacquired", 0, HOLDS),
    (REDIS_PY, "redis_py_race.py:transaction", 0, HOLDS),
    ("python-redis-lock==3.3.1", "python_redis_lock_race.py:waits", 0, "no-deadlock"),
    ("python-redis-lock==3.4.0", "python_redis_lock_race.py:waits", 0, HOLDS),
    ("python-redis-lock==4.0.1", "python_redis_lock_race.py:waits", 0, HOLDS),
    ("python-redis-lock==4.0.1", "python_redis_lock_race.py:leased", 0, HOLDS),
    ("huey==3.3.4", "huey_race.py:counter", 1, "finally"),
    ("huey==3.5.4", "huey_race.py:counter", 1, HOLDS),
    ("huey==3.5.4", "huey_race.py:lock", 0, HOLDS),
    ("huey==3.5.4", "huey_race.py:lapsed_lock", 0, "at-most-1"),
    ("huey==3.5.4", "huey_race.py:rate_limit", 0, "at-most-once"),
    ("walrus==0.9.8", "walrus_race.py:rate_limit", 0, "at-most-once"),
    ("walrus==0.9.8", "walrus_race.py:rate_limit_script", 0, HOLDS),
    ("walrus==0.9.8", "walrus_race.py:rate_limit_script_window", 0, "at-most-once"),
    ("walrus==0.9.8", "walrus_race.py:lock", 0, HOLDS),
    ("walrus==0.9.8", "walrus_race.py:lapse_of_a_second", 0, HOLDS),
    ("walrus==0.9.8", "walrus_race.py:lapse_of_half_a_second", 0, "no-deadlock"),
    ("redis-semaphore==0.2.2", "redis_semaphore_race.py:blocking", 0, HOLDS),
    ("redis-semaphore==0.2.2", "redis_semaphore_race.py:two_tokens", 0, "serializable"),
    ("redis-semaphore==0.2.2", "redis_semaphore_race.py:stale_holder", 0, "at-most-1"),
    ("pottery==3.0.1", "pottery_race.py:get", 0, "no-foreign-exception"),
    ("dramatiq==2.2.1", "dramatiq_race.py:bucket", 0, HOLDS),
    ("dramatiq==2.2.1", "dramatiq_race.py:concurrent", 0, HOLDS),
    ("dramatiq==2.2.1", "dramatiq_race.py:slot_of_the_other", 0, HOLDS),
    ("dramatiq==2.2.1", "dramatiq_race.py:slot_of_the_other", 1, "finally"),
    ("dramatiq==2.2.1", "dramatiq_race.py:window", 0, HOLDS),
    ("dramatiq==2.2.1", "dramatiq_race.py:turn_of_a_second", 0, "at-most-once"),
    ("dramatiq==2.2.1", "dramatiq_race.py:barrier", 0, HOLDS),
    ("limits==5.8.0", "limits_race.py:fixed_window", 0, HOLDS),
    ("limits==5.8.0", "limits_race.py:moving_window", 0, HOLDS),
    ("limits==5.8.0", "limits_race.py:sliding_window_counter", 0, HOLDS),
    ("rq==3.0.0", "rq_race.py:unique", 0, HOLDS),
    ("sherlock==0.4.1", "sherlock_race.py:default", 0, HOLDS),
    ("sherlock==0.4.1", "sherlock_race.py:renewed", 0, HOLDS),
    ("sherlock==0.4.1", "sherlock_race.py:without_end", 0, "at-most-1"),
]


def with_library(library: str) -> dict[str, str]:
    """The environment of a child that finds a library's version; the test is skipped where it is not installed."""
    if not library:
        return dict(os.environ)
    place: Path = install.place(library)
    if not place.is_dir():
        pytest.skip(f"{library} is not installed: nothing is said of it. Install all with: {install.COMMAND}")
    path = os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


def raced(library: str, scenario: str, trouble: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "orderlab", "race", str(HERE / scenario), "--trouble", str(trouble), "--json"]
    done = subprocess.run(words, env=with_library(library), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 1), (done.stdout[:500], done.stderr[-2000:])
    verdict: dict[str, Any] = json.loads(done.stdout)["verdicts"][0]
    return verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize(("library", "scenario", "trouble", "law"), CASES)
def test_a_library_is_judged_as_its_versions_are(library: str, scenario: str, trouble: int, law: str) -> None:
    verdict = raced(library, scenario, trouble)
    assert (verdict["outcome"], verdict["law"]) == ("violated" if law else "holds", law), verdict
    assert law or verdict["how_far"].startswith("all ")


BLOCK = re.compile(
    r"^Replay with `(?P<library>[^`]+)`.*?```python\n(?P<code>.*?)```.*?```text\n(?P<said>.*?)```", re.S | re.M
)
REPLAYS = [
    pytest.param(page, match, id=f"{page.stem}-{number}")
    for page in sorted(FINDINGS.glob("*.md"))
    for number, match in enumerate(BLOCK.finditer(page.read_text()))
]


def test_every_finding_says_how_it_is_seen_on_a_server() -> None:
    pages = {
        page.stem for page in FINDINGS.glob("*.md") if re.search(r"^\| scenario \|", page.read_text(), re.MULTILINE)
    }
    assert pages == {each.values[0].stem for each in REPLAYS}  # type: ignore[attr-defined]
    assert pages


@pytest.mark.exhaustive
@pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server is not installed: no finding is replayed"
)
@pytest.mark.parametrize(("page", "match"), REPLAYS)
def test_a_finding_shows_on_a_real_server(page: Path, match: re.Match[str]) -> None:
    environment = with_library(match["library"])
    with ServerProcess() as server:
        done = subprocess.run(
            [sys.executable, "-c", match["code"]], env={**environment, "REDIS_PORT": str(server.port)},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.stdout == match["said"], (done.stdout, done.stderr[-2000:])
