"""How stories call messages, and how they show the bytes of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orderlab.model.contracts.session.refinement import Account
from orderlab.model.contracts.session.spec import FOREVER_MS, Entry
from orderlab.properties.contracts.session.exploration.scope import Writer
from orderlab.sim.redis.backends.backend import FIRST_MS

if TYPE_CHECKING:
    from orderlab.properties.contracts.session.exploration.system import State, StoreExploration


def name_of(label: int) -> str:
    """A message: ``m3``."""
    return f"m{label}"


def shown(value: Any) -> str:
    """A frozen value with its bytes as text."""
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        return text if text.isprintable() else repr(value)[2:-1]
    if isinstance(value, tuple | list | frozenset):
        items = sorted(map(shown, value)) if isinstance(value, frozenset) else [shown(item) for item in value]
        return "[" + ", ".join(items) + "]"
    return str(value)


def described(system: StoreExploration, state: State) -> dict[str, Any]:
    """What each reader's session holds and its keys, what its reader was told, writers, and the node."""
    found: dict[str, Any] = {}
    effects, node = system.effects, system.nodes[state[-1]]
    for reader in range(system.scope.readers):
        core, known = effects.cores[state[2 * reader]], system.known[state[2 * reader + 1]]
        name = f"reader {reader + 1}"
        found[f"{name} queue"] = queue_of(core.account)
        found[f"{name} was told"] = [f"{name_of(label)} has {one.packet_id}" for label, one in known.sendings]
        found[f"{name} keys"] = {
            shown(key): f"{kind} {shown(value)}"
            for key, (kind, value, _) in sorted(effects.store.frozen(core.keyspace).items())
        }
    for at, writer in enumerate(state[system._writers_at : -1], 1):
        found[f"writer {at}"] = written(system.writers[writer])
    found["ms passed"] = effects.cores[state[0]].now_ms - FIRST_MS
    found["scripts loaded"] = node.has_scripts
    if system.scope.failover:
        replica = node.replica
        found["replica"] = "in step" if replica is None else [queue_of(effects.cores[one].account) for one in replica]
    found["broken"] = [f"{law}: {text}" for law, text in node.broken]
    return found


def queue_of(account: Account) -> list[str]:
    """The live messages as the abstract session has them, oldest first."""
    return [entry_text(entry) for entry in account.queue]


def entry_text(entry: Entry) -> str:
    """``m3 under 1, sent``."""
    words = f"{name_of(entry.label)} under {entry.packet_id}"
    words += ", released" if entry.kind == "PUBREL" else ""
    words += ", sent" if entry.sent else ""
    lives = entry.latest_ms < FOREVER_MS
    return words + (f", until {entry.latest_ms - FIRST_MS} ms" if lives else "")


def written(writer: Writer) -> str:
    """How far a writer is."""
    pending = writer.last is not None and not writer.last.is_answered
    return f"{writer.position} of {writer.quota} saved" + (", no reply to the last" if pending else "")
