"""What a verdict costs: processor time of `orderlab validate` of every store of the suite, the dearest one named.

Each store is validated in a process of its own, at the default effort and at quick; the worked example of
`notes/bindings.md` is made of the note. The time is that of the process and of all that it started and waited for. A
broken store shall cost no more than a sound one: what witnesses, causes and runs at full scale take is in the figure.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import report
from orderlab.model.errors import Defect

ROOT = Path(__file__).resolve().parents[1]
NOTE = "notes/bindings.md"
STORES = ("lua", "lua/specimens", "tests/properties/stores")
"""Folders whose folders are stores."""
EFFORTS = {"standard": 60.0, "quick": 10.0}
"""Processor seconds that the dearest may take."""
CAP_S = 900
"""Of one validation, by the clock: what takes longer is told with what it took until then."""
TO_REACH = {f"dearest_{effort}_cpu_s": ("<=", bound) for effort, bound in EFFORTS.items()}


def stores() -> Iterator[Path]:
    """Every folder that is a store."""
    for place in STORES:
        yield from sorted(file.parent for file in (ROOT / place).glob("*/store.toml"))


def worked_example(folder: Path) -> Path:
    """The store that the note works through, made in ``folder``."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", (ROOT / NOTE).read_text(), re.DOTALL)
    for kind, text in blocks:
        if kind == "lua" and (name := re.match(r"-- (\S+\.lua)", text)):
            (folder / name[1]).write_text(text)
    (folder / "store.toml").write_text(next(text for kind, text in blocks if kind == "toml"))
    return folder


def cpu_seconds(store: Path, effort: str) -> float:
    """Processor time of one validation, or of what was done of it in ``CAP_S``."""
    command = [sys.executable, "-m", "orderlab.cli", "validate", str(store), "--effort", effort]
    command += ["--backend", "kernel", "--trust-adapter", "--budget", str(CAP_S)]
    quiet = {**os.environ, "ORDERLAB_PROGRESS": "0"}
    began = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=quiet) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):
        raise Defect(f"bench validation: {' '.join(command[1:])} ended with {process.returncode}")
    return max(used.ru_utime + used.ru_stime, CAP_S if time.monotonic() - began >= CAP_S else 0.0)


def run(quick: bool = False, parts: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure; with ``quick`` at quick alone, and with ``parts`` the stores of these names."""
    taken: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        known = {str(one.relative_to(ROOT)): one for one in stores()} | {NOTE: worked_example(Path(scratch))}
        for effort in ("quick",) if quick else EFFORTS:
            of_effort = taken.setdefault(effort, {})
            for name, store in known.items():
                if parts is None or name in parts:
                    of_effort[name] = round(cpu_seconds(store, effort), 1)
    worst = {effort: max(costs, key=lambda name: costs[name]) for effort, costs in taken.items()}
    figures = {f"dearest_{effort}_cpu_s": taken[effort][name] for effort, name in worst.items()}
    return report("validation", figures, {"peers": {}, "dearest": worst, "cpu_s": taken})
