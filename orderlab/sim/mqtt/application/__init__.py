"""APPLICATION clients: topics of their own in Kafka, alone or in groups."""
