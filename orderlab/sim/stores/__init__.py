"""Scripts as operations on a backend. Knows no law."""
