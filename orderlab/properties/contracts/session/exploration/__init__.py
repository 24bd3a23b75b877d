"""Every interleaving of writers, readers and trouble around a real session store, for ``orderlab explore store``.

A state is a handful of small numbers. Behind each stands a value that many states share: one session with its keys and
the judge's account (``effects``), what its reader has been told (``sessions``), how far a writer is, the condition of
the node (``state``). What an operation does to a session is found out once, on the kernel and by the judge, and is
looked up from then on.
"""
