"""Forms of specifications that the explorer takes: transition systems, declarative classes, processes."""
