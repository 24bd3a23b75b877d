"""The contract of a session store: one client's queue of messages, numbered, acknowledged, trimmed and expiring."""
