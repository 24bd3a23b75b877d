"""MQTT: topics, clients, brokers and sessions in virtual time."""
