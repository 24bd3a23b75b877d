"""Settings of a system: from `--set`, a file, or a preset to a checked value."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from orderlab.model.errors import InputError, did_you_mean
from orderlab.sim.costs import first_error


class Settings(BaseModel):
    """Base of every system's settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=Settings)


def make_settings(
    kind: type[S], given: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], system: str
) -> S:
    """Settings from ``given``, whose key ``row`` names a published row to begin with. Raises InputError."""
    given = dict(given)
    row = given.pop("row", None)
    base: Mapping[str, Any] = {}
    if row is not None:
        if not rows:
            raise InputError(f"{system}: row {row}: no rows were published for it; remove it")
        if str(row).lower() not in rows:
            raise InputError(f"{system}: row {row}: no such published row; it is one of {', '.join(rows)}")
        base = rows[str(row).lower()]
    for name in given:
        if name not in kind.model_fields:
            raise InputError(f'{system}: unknown setting "{name}"; {did_you_mean(name, ("row", *kind.model_fields))}')
    try:
        return kind.model_validate({**base, **given})
    except ValidationError as error:
        raise InputError(f"{system}: {first_error(error)}") from None


def read_config(path: Path) -> dict[str, Any]:
    """What a TOML file holds: settings, or a sweep. Raises InputError."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))  # editors on Windows put a mark in front
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # of the syntax, of UTF-8, or of a number with thousands of digits
        raise InputError(f"{path}: not TOML ({error}); write key = value, one a line") from None
    except RecursionError:
        raise InputError(f"{path}: not usable (nested too deeply); write key = value, one a line") from None
