"""Validation of a session store: four analyses, one verdict for each law.

(a) footprint: which keys, in which slots, how many commands; (b) a Hypothesis machine at full scale; (c) exploration of
a small scope, every interleaving; (d) each witness minimised, replayed on the unscaled scripts and on a real server.
"""
