"""What a drafted store replies to its first calls: the words of a promise that says what a reply is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.draft.guessed_promises import PromiseLine
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.binding import Binding

CONTRACT, MAKING, TAKING = "job_queue", "add", "take"


def told_promises(folder: Path, contract: str | None) -> Iterator[PromiseLine]:
    """``tells`` of a drafted job queue, from what `take` replied after `add`; nothing of other contracts, where the
    draft has gaps that it cannot be run with, or where a part of the reply is nothing that the contract knows."""
    if contract != CONTRACT:
        return
    try:
        binding = load_binding(folder)
    except InputError:
        return
    words = _words(binding)
    if words:
        replied = ", ".join(f'"{word}"' for word in words)
        yield PromiseLine(f"tells = [{replied}]", f"{TAKING} replied so after {MAKING}")


def _words(binding: Binding) -> list[str]:
    carried = {each.operation: each for each in kind_of(binding).sampled(binding)}
    made, taken = carried.get(MAKING), carried.get(TAKING)
    if made is None or taken is None or not isinstance(taken.result, tuple):
        return []
    known = {str(made.fields[name]): name for name in ("payload", "job") if made.fields.get(name)}
    known |= {"1": "attempt"} | ({str(token): "token"} if (token := taken.fields.get("token")) else {})
    words = [known.get(str(part), "") for part in taken.result]
    promises: Mapping[str, Any] = getattr(binding.store, "promises", {})
    if words.count("") == 1 and promises.get("tokens", "store") == "store":
        words[words.index("")] = "token"  # which the store makes
    return words if "" not in words and len({*words}) == len(words) else []
