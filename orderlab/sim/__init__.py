"""How systems behave: Redis, Kafka, MQTT and the network, in virtual time."""

from orderlab.sim.native import install as compiled

compiled.install()
