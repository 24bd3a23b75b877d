"""Lua scripts that live in strings of other languages: which strings there are, and what they are at run time."""

SUFFIXES = (
    *(".java", ".kt", ".kts", ".py", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"),
    *(".go", ".php", ".rb", ".cs"),
)
"""Of the names of files whose strings may be scripts."""
