"""The command line and what it prints."""

__version__ = "0.1.0"
