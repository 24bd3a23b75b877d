"""`orderlab validate --watch`: what is saved is judged, what is only touched is not, Ctrl-C ends it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from orderlab.properties.validation.watching import Watched
from tests.in_process import ROOT


def test_content_counts_and_not_the_time_of_a_save(tmp_path: Path) -> None:
    store = Path(shutil.copytree(ROOT / "orderlab" / "lua" / "limiter", tmp_path / "limiter"))
    watched = Watched(store, trust_adapter=True)
    assert watched.has_changed()
    assert not watched.has_changed()
    script = store / "hit.lua"
    os.utime(script, ns=(1, 1))
    assert not watched.has_changed(), "touched"
    script.write_text(script.read_text() + "\n-- saved\n")
    assert watched.has_changed()
    assert not watched.has_changed()
    script.rename(store / "gone.txt")
    assert watched.has_changed()


def test_a_program_that_holds_the_script_is_watched(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "src").mkdir(parents=True)
    program = store / "src" / "Keys.java"
    program.write_text("class Keys { static final String RENEW = \"return redis.call('GET', KEYS[1])\"; }\n")
    text = (ROOT / "orderlab" / "lua" / "lock" / "store.toml").read_text()
    (store / "store.toml").write_text(text.replace("renew.lua", "src/Keys.java#RENEW"))
    for name in ("lease.py", "acquire.lua", "release.lua"):
        shutil.copy(ROOT / "orderlab" / "lua" / "lock" / name, store)
    watched = Watched(store, trust_adapter=True)
    watched.has_changed()
    program.write_text(program.read_text().replace("GET", "TTL"))
    assert watched.has_changed()


def test_a_save_is_judged_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    store = Path(shutil.copytree(ROOT / "orderlab" / "lua" / "lock", tmp_path / "lock"))
    command = [sys.executable, "-m", "orderlab", "validate", str(store), "--watch", "--effort", "0.05"]
    with subprocess.Popen(
        [*command, "--trust-adapter", "--backend", "kernel"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert process.stdout is not None
        try:
            assert "watching" in process.stderr.readline()
            (store / "release.lua").write_text("return redis.call('DEL', KEYS[1])\n")
            assert "watching" in process.stderr.readline()
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            told = process.stdout.read()
            assert process.wait(timeout=300) == 1, "the verdict of the last save"
        finally:
            process.kill()
    assert "own-release" in told
    assert "Traceback" not in told
