"""A Redis Cluster of shards: hash slots, their map, redirections."""
