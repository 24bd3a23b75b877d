"""Traces that a run leaves behind, for ``orderlab replay``: of the laws of a store, and of machines that users wrote."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from orderlab.model.files import write_whole

TRACES = ".orderlab"
NAME_LONGEST = 100


def home_of(config: pytest.Config) -> Path:
    """Where traces and failing examples are kept: beside the configuration file. Without one pytest takes the nearest
    folder above all that it was given for the root, which is nobody's: then it is where pytest was started."""
    return config.rootpath if config.inipath is not None else config.invocation_params.dir


def keep_trace(config: pytest.Config, name: str, trace: dict[str, Any]) -> str:
    """Write a trace; what replays it, or why there is nothing to replay. Where it cannot be written no story is lost."""
    file = home_of(config) / TRACES / f"{name}.json"
    shown = os.path.relpath(file, config.invocation_params.dir)
    try:
        file.parent.mkdir(exist_ok=True)
        write_whole(file, json.dumps(trace, indent=1).encode())
    except OSError as error:
        return f"no trace to replay: {shown}: {error.strerror}"
    return f"replay it: orderlab replay {shown}"


def file_name_of(nodeid: str) -> str:
    """A test's identifier as the name of a file."""
    return re.sub(r"[^\w.-]+", "-", nodeid)[-NAME_LONGEST:].strip("-.")
