"""The two ways in which a command ends without a verdict: the input is unusable, or this suite has a defect.

With the words that messages of the first kind share: what may have been meant, and what was given.
"""

from collections.abc import Sequence

GIVEN_MAX = 80
"""Characters that a message shows of a value."""


class InputError(Exception):
    """The input is unusable. The message is one line that names the thing, the place and the cure (exit code 2)."""


class Defect(Exception):
    """A fault of this suite, not of the input: a promise to itself is broken (exit code 70, like any uncaught
    exception)."""


class WorkerDied(Defect):
    """A process that worked for this one ended before its answer: killed, out of memory, or crashed.

    The message says whose process it was and how it ended. What it worked on is undecided.
    """


class EngineError(Defect):
    """Two engines of the explorer disagree on a state. The message names the state, and what each of them says."""


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of an error message: the known word that is meant, or all of them."""
    from difflib import get_close_matches  # costs every start, and is asked for where one fails

    by_lower = {candidate.lower(): candidate for candidate in known}
    near = get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    if near:
        hidden = "" if word.isprintable() else f"{word!a} has characters that do not show; "
        return f'{hidden}did you mean "{by_lower[near[0]]}"?'
    return f"known here: {', '.join(known)}" if known else "nothing is known here"


def shortened(given: object) -> str:
    """A value as it was given, as far as one line has room for it."""
    try:
        shown = repr(given)
    except ValueError:  # Python prints no integer of more than 4300 digits
        shown = "a very large integer"
    return shown if len(shown) <= GIVEN_MAX else shown[:GIVEN_MAX] + "..."
