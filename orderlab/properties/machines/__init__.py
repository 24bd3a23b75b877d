"""Rule-based state machines, one per store or protocol."""
