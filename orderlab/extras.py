"""The extras of an installation: which packages each brings beyond the core, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from orderlab.model.errors import InputError

EXTRAS = {
    "check": ("networkx", "numba", "pyarrow", "scipy"),
    "sim": ("simpy",),
    "report": ("jinja2",),
    "spark": ("SALib", "pandas", "pyspark", "venv_pack"),
    "postgres": ("psycopg",),
    "streams": ("rocksdict",),
    "clients": ("greenlet",),
    "best": ("optuna",),
    "query": ("duckdb",),
    "record": ("paho",),
    "solver": ("z3",),
}
"""Extra -> the modules that it brings, beside those of extras that it contains (``pyproject.toml``)."""
WANTED = {
    "explore": "check",
    "check": "check",
    "simulate": "sim",
    "compare": "sim",
    "calibrate": "sim",
    "sweep": "spark",
    "runs": "spark",
    "bench": "all",
    "race": "clients",
    "record": "record",
}
"""The extra with all that a command needs; other commands need none but for single options."""


def told(who: str, error: ImportError) -> str | None:
    """One line for ``error``, raised on behalf of a command or of a public module; None where no extra brings the
    module."""
    missing = (error.name or "").split(".")[0]
    bringing = [extra for extra, modules in EXTRAS.items() if missing in modules]
    if not bringing:
        return None
    return f"{who} needs {missing}, which is not installed: pip install 'orderlab[{WANTED.get(who, bringing[0])}]'"


@contextmanager
def told_of(who: str) -> Iterator[None]:
    """Within it a module that an extra brings is missed by a line that says so. Raises ImportError."""
    try:
        yield
    except ModuleNotFoundError as error:
        line = told(who, error)
        if line is None:
            raise
        raise ImportError(line, name=error.name) from None


def find(module: str, who: str) -> None:
    """See, without importing it, that a module that an extra brings is there. Raises InputError, for ``who``."""
    if find_spec(module) is None:
        raise InputError(str(told(who, ModuleNotFoundError(name=module))))
