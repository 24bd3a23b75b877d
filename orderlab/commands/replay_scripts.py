"""`orderlab replay` of what was found of scripts that no contract judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orderlab.model.errors import InputError

if TYPE_CHECKING:
    from orderlab.properties.export.transcript import Move
    from orderlab.sim.redis.backends import Backend


class OnScripts(NamedTuple):
    """Calls of scripts that no contract judges, and what they were to break."""

    path: Path
    server: str
    law: str
    is_read_only: bool
    steps: tuple[Mapping[str, Any], ...]


def scripts_in(
    findings: Sequence[Mapping[str, Any]], place: str, law: str | None, finding: int | None = None
) -> OnScripts:
    """The witness of a finding among those of a subject, by its number, else the first one of ``law``. Raises
    InputError."""
    if finding is not None and finding > len(findings):
        raise InputError(f"{place}: --finding {finding}: it has {len(findings)}; name one of them")
    asked = findings[finding - 1 : finding] if finding is not None else findings
    witnesses = [each["witness"] for each in asked if law in (None, each.get("law")) and each.get("witness")]
    if not witnesses:
        raise InputError(f"{place}: no witness{f' of {law}' if law else ''} in it; every such law held")
    witness = witnesses[0]
    try:
        return OnScripts(
            Path(witness["scripts"]), str(witness["server"]), str(witness["law"]), witness["read_only"] is True,
            tuple(dict(step) for step in witness["steps"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{place}: no witness of scripts ({type(error).__name__}: {error}); write it again with validate --json"
        ) from None


def scripts_again(
    recorded: OnScripts, file: Path, store: Path | None, wanted: Sequence[tuple[str, Path]], backend: str
) -> tuple[list[Move], str]:
    """The steps taken again on the scripts that lie there now, and where. Writes the exports."""
    from orderlab.properties.export.export import TELLING, write_transcript
    from orderlab.properties.export.transcript import Transcript
    from orderlab.report.output import write_files
    from orderlab.sim.redis.backends import open_backend

    for form, _ in wanted:
        if form not in TELLING:
            raise InputError(
                f"--export {form}: {file} is of scripts that no contract judges, and a test has nothing to judge by; "
                f"export {', '.join(sorted(TELLING))}"
            )
    if backend == "kernel":
        moves, place = _moves(recorded, store, None), "kernel"
    else:
        with open_backend(backend) as opened:
            moves, place = _moves(recorded, store, opened), opened.describe()
    text = next((told for move in moves for law, told in move.broken if law == recorded.law), "")
    title = f"{recorded.law} is violated: {text}" if text else f"no step of these breaks {recorded.law}"
    transcript = Transcript(title, recorded.law, moves[0], tuple(moves[1:]))
    write_files([(target, write_transcript(form, transcript)) for form, target in wanted])
    return moves, place


def _moves(recorded: OnScripts, store: Path | None, server: Backend | None) -> list[Move]:
    from orderlab.properties.draft.rerun import Rerun
    from orderlab.sim.redis.versions import version_named

    path, version = store or recorded.path, version_named(recorded.server)
    return list(Rerun(path, recorded.law, recorded.steps, version, recorded.is_read_only, server).moves())
