"""The protocol between clients and servers (RESP2 and RESP3), from both ends.

A client's end is `resp_client`: one connection that returns replies as they were sent. A server's end serves the
kernel: `resp_reader` takes requests apart, `resp_writer` writes replies, `served_client` is one connection,
`served_node` one node behind a port with its clock and its timers.
"""

from orderlab.sim.redis.wire.resp_client import Connection, ReplyParser, encode_command

__all__ = ["Connection", "ReplyParser", "encode_command"]
