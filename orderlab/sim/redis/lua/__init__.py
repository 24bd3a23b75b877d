"""The Lua host: engine, runs of scripts, sandbox, libraries."""
