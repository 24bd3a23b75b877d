"""Durable streams: an ordered store, the keys of messages in it, and their replay (the proposal for MQTT brokers,
`notes/streams.md`)."""
