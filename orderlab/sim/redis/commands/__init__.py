"""Redis commands, one file per data type; a file is found by being here (``registry.load_commands``).

A command is a function of the node and the words that called it, under ``@command`` with its name, arity, flags and
keys as COMMAND INFO of a server shows them. When it is called the arity fits and the node would carry it out
(``execution.admit`` for clients, ``lua.script_run`` for scripts). Arguments and types are checked in the server's
order, since of two errors the first is told, and before the first write, since no command is half done. An error is an
``ErrorReply`` that it raises.

It reads values with ``node.lookup_as``, installs new ones with ``node.install``, and tells what it changed with
``node.modified``; a value is changed by its own methods, which take ``node.undo`` so that a rollback finds the
inverse step.

The docstring is the command's syntax, and after it only what would surprise: where the server's own behaviour is odd,
and where the kernel's differs.
"""
