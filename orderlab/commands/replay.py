"""`orderlab replay`: take the steps of a recorded trace again, on any backend, and judge each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orderlab.model.errors import InputError
from orderlab.program import ExitCode

if TYPE_CHECKING:
    from orderlab.model.contracts.contract import AnyTrace


def replay(
    file: Annotated[Path, typer.Argument(help="A trace, a JSON report, or the output of validate --json.")],
    store: Annotated[Path | None, typer.Option(help="The store to replay on; by default the one in the trace.")] = None,
    law: Annotated[str | None, typer.Option(help="Which witness of a validation; by default the first.")] = None,
    finding: Annotated[int | None, typer.Option(min=1, help="Which finding of a report, by its number.")] = None,
    backend: Annotated[str, typer.Option(help="kernel, fakeredis, auto or redis://HOST:PORT.")] = "kernel",
    trust_adapter: Annotated[bool, typer.Option(help="Run the Python that the store names: its adapter, its contract.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Take the steps of a trace again and judge each.

    Exit code 0: no law is broken; 1: one is; 2: unusable input.
    """
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.sim.redis.backends import open_backend
    from orderlab.sim.stores.binding.loader import load_binding

    trace = read_trace(file, law, finding)
    binding = load_binding(store or Path(trace.store), trust_adapter=trust_adapter)
    kind = kind_of(binding)
    if not kind.reads(trace.to_json()):
        raise InputError(f"{file}: a trace of another kind of store than {binding.place}; name another with --store")
    with open_backend(backend) as opened:
        place = opened.describe()
        retold = kind.replay(trace, binding, opened)
    is_broken = any(one["broken"] for one in retold)
    if as_json:
        print(json.dumps({"backend": place, "store": str(binding.path), "seed": trace.seed, "steps": retold}))
    else:
        for at, one in enumerate(retold, 1):
            print(f"{at}. {one['step']}")
            if one["result"]:
                print(f"   {one['result']}")
            for name, text in one["broken"]:
                print(f"   {name} is violated: {text}")
        print(f"on {place}: {'violated' if is_broken else 'no law is broken'}; seed: {trace.seed}")
    raise typer.Exit(ExitCode.VIOLATED if is_broken else ExitCode.HOLDS)


def read_trace(file: Path, law: str | None, finding: int | None = None) -> AnyTrace:
    """The trace in ``file``. Raises InputError when there is none."""
    from orderlab.properties.contracts.kind import trace_from_json

    try:
        data: Any = json.loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; name the JSON file of a trace") from None
    except ValueError as error:
        raise InputError(f"{file}: not JSON ({error}); give what validate --json printed") from None
    if isinstance(data, dict) and "subjects" in data:
        data = _of_report(data, file, law, finding)
    elif finding is not None:
        raise InputError(f"{file}: no report, and --finding is of one; give what --report json=FILE wrote")
    elif isinstance(data, dict) and "laws" in data:
        try:
            asked = [one for one in data["laws"] if law in (None, one["law"])]
            found = [w for one in asked for w in (one.get("witnesses") or [one.get("witness")]) if w]
            if not found:
                raise InputError(f"{file}: no witness{f' of {law}' if law else ''} in it; every such law held")
            data = found[0]["trace"]
        except (KeyError, TypeError, AttributeError):
            raise InputError(f"{file}: not a validation; give what validate --json printed") from None
    return trace_from_json(data, str(file))


def _of_report(data: Any, file: Path, law: str | None, finding: int | None) -> Any:
    """The trace of one finding of a report, by its number, else the first one of ``law``."""
    from pydantic import ValidationError

    from orderlab.report.report import Report

    try:
        report = Report.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{file}: not a report of this version ({error.errors()[0]['msg']}); write it again") from None
    findings = [one for subject in report.subjects for one in subject.findings]
    if finding is not None and finding > len(findings):
        raise InputError(f"{file}: --finding {finding}: it has {len(findings)}; name one of them")
    asked = findings[finding - 1 : finding] if finding is not None else [one for one in findings if law in (None, one.law)]
    if not asked:
        raise InputError(f"{file}: no finding{f' of {law}' if law else ''} in it; every such law held")
    if report.command != "validate" or asked[0].witness is None:
        raise InputError(f"{file}: a report of {report.command}, which has no steps on a store; give one of validate")
    return asked[0].witness
