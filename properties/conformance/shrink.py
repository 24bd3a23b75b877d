"""Makes a disagreement short enough to read: fewer steps first, then fewer and plainer arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from properties.conformance.grammar import Argv
from properties.conformance.judge import Disagreement
from properties.conformance.sequences import CommandSequence, Step

Compare = Callable[[CommandSequence], Disagreement | None]
PLAIN_ARGUMENTS = (b"a", b"1")


def shrink(found: Disagreement, compare: Compare, attempts_max: int = 3000) -> Disagreement:
    """A disagreement on the same command with as few steps and arguments as could be found.

    ``compare`` must be repeatable. Stops after ``attempts_max`` comparisons with the best so far.
    """
    best = found
    attempts = 0

    def still_fails(steps: tuple[Step, ...]) -> bool:
        nonlocal best, attempts
        attempts += 1
        seen = compare(replace(best.sequence, steps=steps))
        if seen is None or seen.command != found.command:
            return False
        best = seen
        return True

    still_fails(found.sequence.steps[: found.index + 1])
    is_shorter = True
    while is_shorter and attempts < attempts_max:
        is_shorter = any(still_fails(steps) for steps in _without_some_steps(best)) or any(
            still_fails(steps) for steps in _with_plainer_steps(best)
        )
    return best


def _without_some_steps(found: Disagreement) -> Iterator[tuple[Step, ...]]:
    steps = found.sequence.steps
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps), size):
            yield steps[:start] + steps[start + size :]
        size //= 2


def _with_plainer_steps(found: Disagreement) -> Iterator[tuple[Step, ...]]:
    steps = found.sequence.steps
    for index, step in enumerate(steps):
        if not isinstance(step, int):
            for plainer in _plainer(step):
                yield (*steps[:index], plainer, *steps[index + 1 :])


def _plainer(argv: Argv) -> Iterator[Argv]:
    for at in range(1, len(argv)):
        yield argv[:at] + argv[at + 1 :]
    for at in range(1, len(argv)):
        lines = argv[at].splitlines(keepends=True)
        for line in range(len(lines) if len(lines) > 1 else 0):  # a script: leave out one of its lines
            yield (*argv[:at], b"".join(lines[:line] + lines[line + 1 :]), *argv[at + 1 :])
        for word in PLAIN_ARGUMENTS:
            if argv[at] not in PLAIN_ARGUMENTS and len(argv[at]) >= len(word):
                yield (*argv[:at], word, *argv[at + 1 :])


def render(found: Disagreement) -> str:
    """The disagreement as lines that can be typed into ``redis-cli``, and what each side said to the last one."""
    lines = []
    if found.sequence.resp == 3:
        lines.append("HELLO 3")
    if found.sequence.has_small_encodings:
        lines.append("(with the small encoding limits of properties/conformance/sequences.py)")
    for step in found.sequence.steps:
        lines.append(f"({step} ms pass)" if isinstance(step, int) else " ".join(map(quote, step)))
    return "\n".join([*lines, f"-> {found.what}"])


def quote(argument: bytes) -> str:
    """An argument as ``redis-cli`` reads it."""
    if argument and all(33 <= byte < 127 and byte not in b"\"'\\" for byte in argument):
        return argument.decode()
    shown = {b'"'[0]: '\\"', b"\\"[0]: "\\\\", 10: "\\n", 13: "\\r"}
    text = "".join(shown.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in argument)
    return f'"{text}"'
