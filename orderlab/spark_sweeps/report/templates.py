"""The templates of reports, and what all of them tell: what was held fixed."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup, escape

from orderlab.spark_sweeps.questions.tables import cell
from orderlab.spark_sweeps.specification import SweepFile


def template(name: str) -> jinja2.Template:
    """One of the ``.html.j2`` files beside this one."""
    here = files("orderlab.spark_sweeps.report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: here.joinpath(name).read_text()),
    )  # fmt: skip
    environment.globals["cell"] = cell
    environment.globals["breakable"] = _breakable
    return environment.get_template(name)


def _breakable(name: str) -> Markup:
    """A dotted name that a narrow column may break after a dot or an underscore."""
    return Markup("").join(
        escape(part) if part not in "._" else Markup(f"{part}<wbr>") for part in re.split("([._])", name) if part
    )


def held_fixed(sweep: SweepFile, varied: Collection[str]) -> list[dict[str, Any]]:
    """Base, defaults of the system, seed, replications."""
    held: dict[str, Any] = {name: value for name, value in sweep.base.items() if name not in varied}
    held |= {
        "seed": sweep.seed, "replications": sweep.replications.count,
        "common random numbers": sweep.replications.common_random_numbers,
    }  # fmt: skip
    if ":" not in sweep.system:
        from orderlab.sim.systems.catalogue import entry

        for name, field in entry(sweep.system).settings.model_fields.items():
            if name not in held and name not in varied:
                held[f"{name} (default)"] = field.default
    return [{"parameter": name, "value": str(value)} for name, value in held.items()]
