"""The delivery laws, judged in one pass over a history."""
