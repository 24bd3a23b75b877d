"""Readers of published linearizability test logs: Jepsen's EDN operation maps and its plain log lines."""

from orderlab.model.history.formats.jepsen import read_edn_operations, read_log_lines

__all__ = ["read_edn_operations", "read_log_lines"]
