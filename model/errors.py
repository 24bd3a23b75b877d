"""The one error that a user's own input raises: unusable scripts, bindings, histories, flags or servers."""


class InputError(Exception):
    """The input is unusable. The message is one line that names the thing, the place and the cure (exit code 2)."""
