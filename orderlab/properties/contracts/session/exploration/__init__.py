"""Every interleaving of writers, readers and trouble around a real session store: one explorer (``system``), for
``orderlab explore store`` (``catalogue``) and for the small scopes of validation, mutation and comparison.
"""
