"""How systems behave: Redis, Kafka, MQTT and the network, in virtual time."""

from orderlab.sim import compiled

compiled.install()
