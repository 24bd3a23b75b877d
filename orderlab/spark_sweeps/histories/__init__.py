"""Histories judged in parts."""
