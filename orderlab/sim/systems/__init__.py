"""Whole systems, assembled from the parts, by the names under which they were published."""
