"""What a drafted store replies to its first calls: the words of a promise that says what a reply is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orderlab.model.contracts.base import Call
from orderlab.model.errors import InputError
from orderlab.properties.contracts.kind import kind_of
from orderlab.properties.draft.guessed_promises import PromiseLine
from orderlab.sim.stores.binding import load_binding
from orderlab.sim.stores.binding.binding import Binding

MAKING, TAKING = "add", "take"
REFUSALS = (None, 0, "0")
"""By which a lock says no."""


def told_promises(folder: Path, contract: str | None) -> Iterator[PromiseLine]:
    """``tells`` of a drafted job queue, from what `take` replied after `add`; of a lock whether a holder may come in
    again. Nothing of other contracts, where the draft has gaps that it cannot be run with, or where a part of the reply
    is nothing that the contract knows."""
    if contract not in ("job_queue", "lock"):
        return
    try:
        binding = load_binding(folder)
    except InputError:
        return
    if contract == "lock":
        yield from _reentrant(binding)
    elif words := _words(binding):
        replied = ", ".join(f'"{word}"' for word in words)
        yield PromiseLine(f"tells = [{replied}]", f"{TAKING} replied so after {MAKING}")


def _reentrant(binding: Binding) -> Iterator[PromiseLine]:
    """Whether a caller whose lease lives is granted another, and whether it then takes two releases."""
    promises: Mapping[str, Any] = getattr(binding.store, "promises", {})
    contract = binding.contract
    if contract is None or promises.get("tokens") != "caller" or "acquire" not in binding.operations:
        return

    def calls(*named: str) -> Iterator[Call]:
        for each in named:
            name, _, token = each.partition(" ")
            fields = {"token": token, "ttl_ms": 1000}
            yield Call.of(name, **{field: fields[field] for field in contract.operations[name]})

    asked = ["acquire t0", "acquire t0", *(["release t0", "acquire t1"] if "release" in binding.operations else [])]
    results = [each.result for each in kind_of(binding).sampled(binding, [*calls(*asked)])]
    if promises.get("holders", 1) > 1 or any(result in REFUSALS for result in results[:2]):
        return
    again = "counts" if results[2:] and results[-1] in REFUSALS else "extends"
    yield PromiseLine(f'reentrant = "{again}"', "a second acquire by its holder was granted")


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
    if "attempt" in words and "job" not in words:
        return []  # a name that the store gives jobs is 1 as well
    return words if "" not in words and len({*words}) == len(words) else []
