"""`orderlab replay`: take the steps of a recorded trace again, on any backend, and judge each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderlab.exit_codes import ExitCode
from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.model.contracts.trace import Trace


def replay(
    file: Annotated[Path, typer.Argument(help="A trace, or the output of validate --json.")],
    store: Annotated[Path | None, typer.Option(help="The store to replay on; by default the one in the trace.")] = None,
    law: Annotated[str | None, typer.Option(help="Which witness of a validation; by default the first.")] = None,
    backend: Annotated[str, typer.Option(help="kernel, fakeredis, auto or redis://HOST:PORT.")] = "kernel",
    trust_adapter: Annotated[bool, typer.Option(help="Run the Python adapter that the store names.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Take the steps of a trace again and judge each.

    Exit code 0: no law is broken; 1: one is; 2: unusable input.
    """
    from orderlab.model.contracts.session.words import told_step
    from orderlab.model.contracts.trace import Pass
    from orderlab.properties.witness.confirmation import run_on
    from orderlab.properties.witness.explanation import tell
    from orderlab.sim.redis.backends import open_backend
    from orderlab.sim.stores.binding.loader import load_binding

    trace = read_trace(file, law)
    binding = load_binding(store or Path(trace.store), trust_adapter=trust_adapter)
    with open_backend(backend) as opened:
        place = opened.describe()
        reports = run_on(trace, binding, opened)
    broken = [(at, one) for at, report in enumerate(reports, 1) for one in report.discrepancies]
    if as_json:
        steps = [
            {
                "step": told_step(report.step, trace),
                "result": tell(report.result),
                "broken": [list(one) for one in report.discrepancies],
            }
            for report in reports
        ]
        print(json.dumps({"backend": place, "store": str(binding.path), "seed": trace.seed, "steps": steps}))
    else:
        for at, report in enumerate(reports, 1):
            print(f"{at}. {told_step(report.step, trace)}")
            if not isinstance(report.step, Pass):
                print(f"   {tell(report.result)}")
            for one in report.discrepancies:
                print(f"   {one.law} is violated: {one.text}")
        print(f"on {place}: {'violated' if broken else 'no law is broken'}; seed: {trace.seed}")
    raise typer.Exit(ExitCode.VIOLATED if broken else ExitCode.HOLDS)


def read_trace(file: Path, law: str | None) -> Trace:
    """The trace in ``file``. Raises InputError when there is none."""
    from orderlab.model.contracts.trace import Trace

    try:
        data: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; name the JSON file of a trace") from None
    except ValueError as error:
        raise InputError(f"{file}: not JSON ({error}); give what validate --json printed") from None
    if isinstance(data, dict) and "laws" in data:
        witnesses = [one for one in data["laws"] if one.get("witness") and law in (None, one["law"])]
        if not witnesses:
            raise InputError(f"{file}: no witness{f' of {law}' if law else ''} in it; every such law held")
        data = witnesses[0]["witness"]["trace"]
    return Trace.from_json(data, str(file))
