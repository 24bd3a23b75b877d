"""Messages that a listing does not show and that are not gone: they come once others are acknowledged, or saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orderlab.model.contracts.session.refinement import Seen
from orderlab.properties.harness.state import EVERYTHING
from orderlab.sim.stores.binding.results import Fetched, FetchedMessage, Message

if TYPE_CHECKING:
    from orderlab.properties.harness.run import SessionRun

PROBE = Message(b"a message to see what comes with it", b"t", 1, None, 0)


def come_later(run: SessionRun, client: int, listed: Fetched, shown: set[int | None]) -> tuple[list[Seen], bool]:
    """Which live messages come in later pages, each page acknowledged, and whether it takes another save for one.

    Tried, and taken back.
    """
    live = {entry.label for entry in run.state.accounts[client].queue} | {
        label for label, (whose, _) in run.publications.items() if whose == client
    }
    live -= {label for label, fate in run.state.accounts[client].fates if fate != "refused"}  # it may have come again
    if live <= shown:
        return [], False
    with run.store.aside():
        hidden = _page_by_page(run, client, listed, set(shown))
        if live <= shown | {seen.label for seen in hidden}:
            return hidden, False
        _save_one(run, client)
        known = {*shown, *(seen.label for seen in hidden)}
        more = _page_by_page(run, client, _page(run, client), known)
        return [*hidden, *more], bool(more)


def _page_by_page(run: SessionRun, client: int, page: Fetched, known: set[int | None]) -> list[Seen]:
    """What ``page`` shows that is not known, and the pages that come when it is acknowledged."""
    found: list[Seen] = []
    is_first = True
    while page.messages:
        fresh = [one for one in run.seen_in(client, page) if one.label is not None and one.label not in known]
        if not fresh and not is_first:
            break
        is_first = False
        found += fresh
        known |= {one.label for one in fresh}
        for message in page.messages if "acknowledge" in run.store.operations else ():
            _answer(run, client, message)
        page = _page(run, client)
    return found


def _page(run: SessionRun, client: int) -> Fetched:
    found = run.store.perform("fetch", run.clients[client], {**_epoch(run, client), "count": EVERYTHING, "after": 0})
    return found if isinstance(found, Fetched) else Fetched()


def _answer(run: SessionRun, client: int, message: FetchedMessage) -> None:
    fields = {**_epoch(run, client), "packet_id": message.packet_id or 0, "sequence": message.sequence or 0}
    for operation in ("release", "acknowledge"):
        if operation in run.store.operations and (operation == "acknowledge" or message.kind == "PUBLISH"):
            run.store.perform(operation, run.clients[client], fields)


def _save_one(run: SessionRun, client: int) -> None:
    fields: dict[str, object] = {
        **_epoch(run, client),
        "limit": run.store.limit_max,
        "default_expiry_ms": run.store.default_expiry_ms,
        "producer": run.producers[0],
        "batch": run.state.batches[0].number + 1,
        "messages": (PROBE,),
    }
    run.store.perform("save", run.clients[client], fields)


def _epoch(run: SessionRun, client: int) -> dict[str, object]:
    return {"epoch": run.state.accounts[client].session.epoch}
