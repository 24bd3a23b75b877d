"""Questions that many runs answer together, one file each."""
