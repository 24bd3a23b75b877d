"""Cost models: what each step costs in microseconds, one TOML file each."""
