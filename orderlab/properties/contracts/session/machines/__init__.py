"""Rule-based state machines over one session store."""
