"""The protocols of durable streams as specifications (`notes/streams.md`)."""
