"""Makes a disagreement short enough to read: fewer steps first, then fewer and plainer arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from orderlab.properties.conformance.grammar import Argv
from orderlab.properties.conformance.judge import Disagreement
from orderlab.properties.conformance.sequences import CommandSequence, Step

Compare = Callable[[CommandSequence], Disagreement | None]
PLAIN_ARGUMENTS = (b"a", b"1")


class _Search:
    """The best sequence so far, and how many comparisons may still be made."""

    def __init__(self, found: Disagreement, compare: Compare, attempts: int) -> None:
        self.best = found
        self._compare = compare
        self._found = found
        self.attempts_left = attempts

    def accepts(self, sequence: CommandSequence) -> bool:
        """Whether ``sequence`` shows the disagreement too; it is then the best."""
        if self.attempts_left <= 0:
            return False
        self.attempts_left -= 1
        seen = self._compare(sequence)
        if seen is None or (seen.command, seen.kind) != (self._found.command, self._found.kind):
            return False
        self.best = seen
        return True

    def accepts_steps(self, steps: tuple[Step, ...]) -> bool:
        """The same for other steps under the same settings."""
        return self.accepts(replace(self.best.sequence, steps=steps))

    def leave_out_steps(self) -> None:
        """Leave out half of the steps, a quarter, ..., single ones."""
        size = max(1, len(self.best.sequence.steps) // 2)
        while size:
            start = 0
            while start < len(self.best.sequence.steps):
                steps = self.best.sequence.steps
                if not self.accepts_steps(steps[:start] + steps[start + size :]):
                    start += size
            size //= 2

    def simplify_arguments(self) -> None:
        """Leave out arguments, and put plain ones in the place of others."""
        for index in range(len(self.best.sequence.steps)):
            while index < len(self.best.sequence.steps) and self._simplify(index):
                pass

    def _simplify(self, index: int) -> bool:
        steps = self.best.sequence.steps
        step = steps[index]
        if isinstance(step, int):
            return False
        return any(self.accepts_steps((*steps[:index], plainer, *steps[index + 1 :])) for plainer in _plainer(step))


def shrink(found: Disagreement, compare: Compare, attempts_max: int = 3000) -> Disagreement:
    """A disagreement on the same command with as few steps and arguments as could be found.

    ``compare`` must be repeatable. Stops after ``attempts_max`` comparisons with the best so far.
    """
    search = _Search(found, compare, attempts_max)
    if not search.accepts_steps(found.sequence.steps[: found.index + 1]):
        return found
    search.accepts(replace(search.best.sequence, resp=2, has_small_encodings=False))
    size = -1
    while size != (size := sum(map(_size, search.best.sequence.steps))) and search.attempts_left:
        search.leave_out_steps()
        search.simplify_arguments()
    return search.best


def _size(step: Step) -> int:
    return 1 if isinstance(step, int) else 1 + sum(1 + len(argument) for argument in step)


def _plainer(argv: Argv) -> Iterator[Argv]:
    if argv[0][:2].lower() in (b"bl", b"br", b"bz"):
        return  # another timeout might really wait
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
