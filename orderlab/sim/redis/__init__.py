"""The Redis kernel: one shard as a pure state machine that runs real Lua."""
