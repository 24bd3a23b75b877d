"""From a violation to a short story: minimised, at full scale, explained, confirmed."""
