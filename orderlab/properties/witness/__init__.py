"""From a violation to a short story, for every kind of store: made short, explained, told, confirmed."""
