"""The two ways in which a command ends without a verdict: the input is unusable, or this suite has a defect."""


class InputError(Exception):
    """The input is unusable. The message is one line that names the thing, the place and the cure (exit code 2)."""


class Defect(Exception):
    """This suite is at fault, not the input: a promise to itself is broken (exit code 70, like any uncaught exception)."""


class WorkerDied(Defect):
    """A process that worked for this one ended before its answer: killed, out of memory, or crashed.

    The message says whose process it was and how it ended. What it worked on is undecided.
    """


class EngineError(Defect):
    """Two engines of the explorer disagree on a state. The message names the state, and what each of them says."""
