"""Machine code for what is hot: built once, installed at import where it is there."""
