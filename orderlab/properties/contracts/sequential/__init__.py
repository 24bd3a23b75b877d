"""Stores judged by a sequential specification: their kind, and the workloads of those that have one."""
