"""What MQTT 5.0 says, without time: topics, retained messages, QoS, Receive Maximum."""
