"""The contract of a feed: producers post, readers list after a marker, consumers claim for a while."""
