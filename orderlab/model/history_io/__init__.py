"""Histories on disk: Parquet, JSON Lines and CSV, read in batches and written whole or not at all."""

from orderlab.model.history.reading import HistoryFile, open_history, read_history
from orderlab.model.history.writing import HistoryWriter, write_history

__all__ = ["HistoryFile", "HistoryWriter", "open_history", "read_history", "write_history"]
