"""Stores judged by a contract alone: runs, searches, witnesses and verdicts that are generic in the contract."""
