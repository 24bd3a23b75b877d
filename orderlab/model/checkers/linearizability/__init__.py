"""Linearizability of store operations: registers, queues, sets, key-value maps; operations may be indeterminate."""
