"""What a conformance run has really compared: a command that never came up, or only ever failed, was not tested."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orderlab.properties.conformance.judge import Tally
from orderlab.properties.conformance.sequences import GROUPS
from orderlab.sim.redis.registry import COMMANDS, load_commands

NOT_GENERATED = {
    b"asking": "cluster: judged by a real cluster",
    b"cluster": "cluster: judged by a real cluster",
    b"readonly": "cluster: judged by a real cluster",
    b"readwrite": "cluster: judged by a real cluster",
    b"client": "connection state: tested command by command",
    b"command": "the table is compared whole",
    b"config": "node settings: tested command by command",
    b"debug": "node internals: tested command by command",
    b"hello": "begins every sequence",
    b"info": "facts of one process",
    b"lastsave": "facts of one process",
    b"memory": "facts of one process",
    b"quit": "ends the connection",
    b"reset": "ends every sequence",
    b"role": "replication: tested command by command",
    b"wait": "replication: tested command by command",
}
"""Commands of the kernel that sequences leave out, and why."""
NEVER_SUCCEEDS = frozenset((b"?",))
"""Spoilt names."""


def generated() -> frozenset[bytes]:
    """Names of all commands that the tables can produce, alone or inside scripts."""
    names = {name.encode() for group in GROUPS.values() for form in group for name in form.names}
    scripting = b"eval eval_ro evalsha evalsha_ro fcall fcall_ro function script"
    return frozenset((*names, *scripting.split()))


def option_words() -> frozenset[bytes]:
    """Upper-case words that the forms of the kernel's commands name."""
    words = {
        word
        for group in GROUPS.values()
        for form in group
        if all(name.encode() in COMMANDS for name in form.names)
        for command in form.text.split(";")
        for word in re.findall(r"[^\s\[\]{}()|#.]+", command)[1:]
    }
    return frozenset(word.encode() for word in words if word.isupper())


def gaps(tally: Tally, times_min: int) -> Iterator[str]:
    """One line for each command that came up, or succeeded, too rarely, and for each option that never did."""
    load_commands()
    for name in sorted(COMMANDS):
        if name in NOT_GENERATED:
            continue
        shown = name.decode()
        if name not in generated():
            yield f"{shown}: the kernel has it, but no form in properties/conformance/commands.py produces it"
        elif tally.commands[name] < times_min:
            yield f"{shown}: compared {tally.commands[name]} times, less than {times_min}"
        elif not tally.successes[name]:
            yield f"{shown}: never succeeded in {tally.commands[name]} comparisons"
    seen = {word for _, word in tally.options}
    for word in sorted(option_words() - seen):
        yield f"option {word.decode()}: never accepted"
