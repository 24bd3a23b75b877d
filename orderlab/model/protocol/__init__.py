"""MQTT's exchange between two ends: packet identifiers and the QoS handshakes."""
