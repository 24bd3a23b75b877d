"""The wheel with machine code: what `make wheel` asks for by ORDERLAB_WHEEL=compiled. Any other wheel is pure."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
OLDEST_GLIBC = 17
"""Of manylinux2014; what is found in the libraries raises it."""


class MachineCode(BuildHookInterface[Any]):
    """Makes the machine code for this Python and puts it into the wheel, under the digest of its text."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises CannotCompile."""
        if os.environ.get("ORDERLAB_WHEEL") != "compiled":
            return
        sys.path.insert(0, str(ROOT))
        from orderlab.sim.native.build import build
        from orderlab.sim.native.install import shipped

        made = build()
        build_data["force_include"][str(made)] = str(shipped(ROOT).relative_to(ROOT))
        build_data["pure_python"] = False
        build_data["tag"] = _tag(made)


def _tag(made: Path) -> str:
    """Python, its ABI, and the oldest C library that has what the machine code calls."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if sys.platform == "linux":
        needs = {int(found) for file in made.rglob("*.so") for found in GLIBC.findall(file.read_bytes())}
        platform = platform.replace("linux_", f"manylinux_2_{max(needs | {OLDEST_GLIBC})}_")
    return f"{python}-{python}-{platform}"
