"""The engine that tries a store against its contract: run, search, witness and verdict, once for all contracts."""
