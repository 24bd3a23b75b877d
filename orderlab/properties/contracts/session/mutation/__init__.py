"""What judges a mutant of a session store: the laws (``judging``), the original beside it (``equivalence``,
``beside``)."""
