"""The protocol between clients and servers, and one connection that speaks it."""
