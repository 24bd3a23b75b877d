"""What a server has and a served node lacks, from the table of commands and the settings themselves."""

from __future__ import annotations

from orderlab.sim.redis import config
from orderlab.sim.redis.registry import COMMANDS, load_commands
from orderlab.sim.redis.server_facts import setting_defaults
from orderlab.sim.redis.unsupported import DEBUG_LACKING, SERVER_COMMANDS, SERVER_SUBCOMMANDS
from orderlab.sim.redis.wire.served_client import SUBSCRIBING
from orderlab.sim.redis.wire.server_settings import IMMUTABLE, KEPT, ServerSettings


def lacking_commands() -> list[str]:
    """Commands, and subcommands of those that are not lacking whole, each as a client writes it."""
    load_commands()
    names = {name for name in SERVER_COMMANDS if name not in COMMANDS and not SERVER_SUBCOMMANDS.get(name)}
    for container, subcommands in SERVER_SUBCOMMANDS.items():
        known = COMMANDS[container].subcommands if container in COMMANDS else {}
        names |= {container} if not known and container not in COMMANDS else set()
        names |= {b"%b %b" % (container, each) for each in subcommands if known and each not in known}
    names |= {b"debug %b" % name for name in DEBUG_LACKING}
    names |= {b"%b within multi" % name for name in SUBSCRIBING - {b"ssubscribe"}}  # which a server refuses too
    return sorted(name.decode().upper() for name in names)


def fixed_settings() -> list[str]:
    """Directives that CONFIG SET does not let change, though a server does, since nothing here would follow them."""
    settable = KEPT | IMMUTABLE | frozenset(config.DIRECTIVES) | ServerSettings("", 0, b"").settable()
    return sorted(name.decode() for name in setting_defaults() if name not in settable)
