"""The settings of a served node that the kernel itself does not know: limits of connections, the password, and those
that are kept for whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from orderlab.sim.redis import config
from orderlab.sim.redis.config import SettingError
from orderlab.sim.redis.numbers import parse_integer
from orderlab.sim.redis.server_facts import setting_defaults
from orderlab.sim.redis.unsupported import UnsupportedCommand

KEPT: Final = frozenset(
    b"""
    activedefrag activerehashing active-expire-effort appendfsync auto-aof-rewrite-min-size
    auto-aof-rewrite-percentage crash-log-enabled crash-memcheck-enabled dbfilename dir dynamic-hz
    hz lazyfree-lazy-eviction lazyfree-lazy-expire
    lazyfree-lazy-server-del lazyfree-lazy-user-del lazyfree-lazy-user-flush loglevel no-appendfsync-on-rewrite
    rdbcompression repl-backlog-size repl-backlog-ttl repl-timeout save tcp-keepalive
    """.split()
)
"""What may be set and changes nothing that a client of this node could see."""
IMMUTABLE: Final = frozenset(
    b"""
    aclfile always-show-logo aof_rewrite_cpulist appenddirname appendfilename bgsave_cpulist bio_cpulist
    cluster-config-file cluster-enabled cluster-port daemonize disable-thp enable-debug-command enable-module-command
    enable-protected-configs io-threads io-threads-do-reads logfile pidfile rdbchecksum replicaof server_cpulist
    set-proc-title slaveof socket-mark-id supervised syslog-enabled syslog-facility syslog-ident tcp-backlog unixsocket
    unixsocketperm
    """.split()
)
"""What a server lets nobody change while it runs (7.0.15)."""
NO_DEBUG: Final = (
    b'ERR DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local '
    b"connection, otherwise you need to set this option in the configuration file, and then restart the server."
)
LONG_MAX: Final = (1 << 63) - 1
_CLASSES: Final = (b"normal", b"slave", b"pubsub")


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """How much a kind of client may leave unread; 0: as much as it likes."""

    hard_bytes: int
    soft_bytes: int
    soft_s: int


def _bytes(text: bytes) -> int:
    value = config.memory_value(text)
    if value is None:
        raise SettingError("argument must be a memory value")
    return value


UINT_MAX: Final = (1 << 32) - 1


def _natural(text: bytes) -> int:
    value = parse_integer(text)
    if value is None:
        raise SettingError("argument couldn't be parsed into an integer")
    return value


class ServerSettings:
    """Directives by lower-case name, beside those of ``config.DIRECTIVES``."""

    def __init__(
        self,
        host: str,
        port: int,
        password: bytes,
        on_password: Callable[[bytes], None] | None = None,
        debug: str = "yes",
    ) -> None:
        """``debug``: who may call DEBUG, as the directive ``enable-debug-command`` says it."""
        self._texts = {name: text for name, text in setting_defaults().items() if name not in config.DIRECTIVES}
        self._texts |= {b"bind": host.encode(), b"port": b"%d" % port, b"dir": b"/", b"dbfilename": b"dump.rdb"}
        self._texts |= {b"save": b"", b"requirepass": password, b"logfile": b"", b"pidfile": b""}
        self._texts |= {b"enable-debug-command": debug.encode()}
        self.guards_debug = debug != "yes"
        self._on_password = on_password or (lambda text: None)
        self.clients_max = 10_000
        self.query_max_bytes = 1 << 30
        self.idle_s = 0
        self.slower_than_us = 10_000
        """What SLOWLOG remembers; below 0: nothing."""
        self.slow_commands_max = 128
        self.latency_threshold_ms = 0
        """What is an event of LATENCY; 0: nothing."""
        self.tracks_latency = True
        self.output_limits = {
            b"normal": OutputLimit(0, 0, 0),
            b"slave": OutputLimit(256 << 20, 64 << 20, 60),
            b"pubsub": OutputLimit(32 << 20, 8 << 20, 60),
        }

    def forbids(self, argv: Sequence[bytes], address: bytes) -> bool:
        """Whether a client from there may not call this, as it is DEBUG."""
        is_near = self._texts[b"enable-debug-command"] == b"local" and address.startswith((b"127.0.0.1:", b"::1:"))
        return self.guards_debug and argv[0].lower() == b"debug" and len(argv) > 1 and not is_near

    def names(self) -> Sequence[bytes]:
        """The names of all directives."""
        return list(self._texts)

    def show(self, name: bytes) -> bytes | None:
        """The value as CONFIG GET prints it; None for what is no directive here."""
        return self._texts.get(name)

    def settable(self) -> frozenset[bytes]:
        """Directives that something here follows."""
        return frozenset(self._special())

    def note(self, name: bytes, text: bytes) -> None:
        """A fact of the process."""
        self._texts[name] = text

    def prepare(self, name: bytes, text: bytes) -> Callable[[], None]:
        """What sets a directive. Raises SettingError for a value that it refuses, UnsupportedCommand for one that would
        ask for what the node does not do."""
        special = self._special().get(name)
        where = f"CONFIG SET failed (possibly related to argument '{name.decode('latin1')}') - "
        if name in IMMUTABLE:
            raise SettingError(where + "can't set immutable config")
        if special is not None:
            try:
                apply, shown = special(text)
            except SettingError as error:
                raise SettingError(where + str(error)) from None
        else:
            if text != self._texts[name] and name not in KEPT:
                raise UnsupportedCommand(f"CONFIG SET {name.decode()} to anything but '{self._texts[name].decode()}'")
            apply, shown = None, text

        def set_() -> None:
            self._texts[name] = shown
            if apply is not None:
                apply()

        return set_

    def _special(self) -> dict[bytes, Callable[[bytes], tuple[Callable[[], None], bytes]]]:
        return {
            b"requirepass": self._password,
            b"maxclients": lambda text: self._number("clients_max", _natural(text), 1, UINT_MAX),
            b"timeout": lambda text: self._number("idle_s", _natural(text), 0),
            b"client-query-buffer-limit": lambda text: self._number("query_max_bytes", _bytes(text), 1 << 20, 1 << 62),
            b"client-output-buffer-limit": self._limits,
            b"slowlog-log-slower-than": lambda text: self._number("slower_than_us", _natural(text), -1, LONG_MAX),
            b"slowlog-max-len": lambda text: self._number("slow_commands_max", _natural(text), 0, LONG_MAX),
            b"latency-monitor-threshold": lambda text: self._number(
                "latency_threshold_ms", _natural(text), 0, LONG_MAX
            ),
            b"latency-tracking": self._tracking,
        }

    def _tracking(self, text: bytes) -> tuple[Callable[[], None], bytes]:
        if text.lower() not in (b"yes", b"no"):
            raise SettingError("argument must be 'yes' or 'no'")
        return (lambda: setattr(self, "tracks_latency", text.lower() == b"yes")), text.lower()

    def _number(
        self, attribute: str, value: int, least: int, most: int = config.INT_MAX
    ) -> tuple[Callable[[], None], bytes]:
        if not least <= value <= most:
            raise SettingError(f"argument must be between {least} and {most} inclusive")
        return (lambda: setattr(self, attribute, value)), b"%d" % value

    def _password(self, text: bytes) -> tuple[Callable[[], None], bytes]:
        is_new = text != self._texts[b"requirepass"]  # the same again does not undo what ACL SETUSER has changed
        return (lambda: self._on_password(text) if is_new else None), text

    def _limits(self, text: bytes) -> tuple[Callable[[], None], bytes]:
        words = text.split()
        if len(words) % 4:
            raise SettingError("Wrong number of arguments in buffer limit configuration.")
        limits = dict(self.output_limits)
        for at in range(0, len(words), 4):
            kind = words[at].lower().replace(b"replica", b"slave")
            if kind not in _CLASSES:
                raise SettingError("Invalid client class specified in buffer limit configuration.")
            try:
                hard, soft, seconds = _bytes(words[at + 1]), _bytes(words[at + 2]), _natural(words[at + 3])
            except SettingError:
                raise SettingError(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                ) from None
            limits[kind] = OutputLimit(hard, soft, seconds)
        shown = b" ".join(
            b"%b %d %d %d" % (kind, limits[kind].hard_bytes, limits[kind].soft_bytes, limits[kind].soft_s)
            for kind in _CLASSES
        )
        return (lambda: setattr(self, "output_limits", limits)), shown
