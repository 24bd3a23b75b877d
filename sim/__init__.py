"""How systems behave: Redis, Kafka, MQTT and the network, in virtual time."""

from sim import compiled

compiled.install()
