"""The command line called in this process: exit code and output as a process of its own would have them, without its
start."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from orderlab import exit_codes
from orderlab.cli import main

ROOT = Path(__file__).parents[1]


def orderlab(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`orderlab` with these arguments, from the root of the repository unless from elsewhere."""
    words = ["orderlab", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", words),
        mock.patch.object(exit_codes, "_raised", [int(signal.SIGINT)]),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    for stream in (out, err):
        stream.flush()
    told = [stream.buffer.getvalue().decode() for stream in (out, err)]
    assert isinstance(code, int)
    return subprocess.CompletedProcess(words, int(code), *told)
