"""Install what ``libraries.txt`` names, each line into a folder of its own: ``FOLDER/NAME==VERSION/site-packages``.

The folder is ``.libraries`` in the root of the repository, or what ``ORDERLAB_LIBRARIES`` says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("ORDERLAB_LIBRARIES", HERE.parents[3] / ".libraries"))
COMMAND = f"python {Path(__file__).resolve().relative_to(HERE.parents[3])}"
"""What installs them, said from the root of the repository."""


def lines() -> list[list[str]]:
    """The requirements of each library, its own version first."""
    text = (HERE / "libraries.txt").read_text()
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def place(library: str) -> Path:
    """The folder of one version, to be put on the path."""
    return FOLDER / library / "site-packages"


def main() -> int:
    """Install what is not there."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    for requirements in lines():
        target = place(requirements[0])
        if target.is_dir():
            continue
        print(f"installs {' '.join(requirements)}", flush=True)
        code = subprocess.run([*pip, "--target", str(target), *requirements], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
