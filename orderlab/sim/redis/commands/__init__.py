"""Redis commands, one file per data type."""
