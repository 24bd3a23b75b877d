"""The History: what happened, one row per event; its notation, readers and writers."""
