"""Thousands of runs: sweep files, the jobs that run them on Spark, their tables, statistics and reports."""
