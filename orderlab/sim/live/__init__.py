"""Real processes: Redis servers and clusters on loopback, which end with their parent."""
