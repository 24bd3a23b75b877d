"""Kafka: partitions, producers and consumer groups in virtual time."""
