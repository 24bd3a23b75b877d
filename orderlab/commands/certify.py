"""`orderlab certify`: is a certificate of a closed scope what it says? Checked step by step, without a search."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from orderlab.commands.options import TrustAdapter
from orderlab.exit_codes import EXIT


def certify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What validate --certificate has written.")],
    store: Annotated[
        Path | None, typer.Option(help="The store, if it lies elsewhere than the certificate says.")
    ] = None,
    trust_adapter: TrustAdapter = False,
) -> None:
    """Check a certificate: each state is made again, and every step out of it must lead to one that is there.

    Exit code 0: it shows what it says; 1: it does not, or is of another store; 2: the input is unusable.
    """
    from orderlab.model.errors import InputError
    from orderlab.model.files import read_json
    from orderlab.model.verdict import Outcome
    from orderlab.properties.contracts.kind import kind_of
    from orderlab.sim.stores.binding import load_binding

    content = read_json(file)
    named = content.get("store") if isinstance(content, dict) else None
    if not isinstance(named, str):
        raise InputError(f"{file}: no certificate; write one with validate --certificate")
    binding = load_binding(store or Path(named), trust_adapter=trust_adapter)
    outcome, words = kind_of(binding).certified(binding, content, str(file))
    if outcome is Outcome.HOLDS:
        print(f"{binding.name}: {words}")
        return
    print(f"{file}: refused: {words}", file=sys.stderr, flush=True)
    raise typer.Exit(EXIT[outcome])
