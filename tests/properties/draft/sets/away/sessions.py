"""Messages of clients that are away (QoS 1), in Redis."""

import pathlib

import redis

HERE = pathlib.Path(__file__).parent


def load(name):
    """The script with its includes, as our build step writes it."""
    lines = []
    for line in (HERE / f"{name}.lua").read_text().splitlines():
        if line.startswith('--- @include "'):
            lines.append(load(line.split('"')[1]))
        else:
            lines.append(line)
    return "\n".join(lines)


class Sessions:
    def __init__(self, client: redis.Redis, limit=1000, ttl_s=86400):
        self.limit, self.ttl_s = limit, ttl_s
        self.push_script = client.register_script(load("push"))
        self.pending_script = client.register_script(load("pending"))
        self.ack_script = client.register_script(load("ack"))
        self.drop_script = client.register_script(load("drop"))

    def keys(self, client_id):
        return [f"s:{{{client_id}}}:q", f"s:{{{client_id}}}:b", f"s:{{{client_id}}}:m"]

    def push(self, client_id, payload):
        return self.push_script(keys=self.keys(client_id), args=[payload, self.limit, self.ttl_s])

    def pending(self, client_id):
        return self.pending_script(keys=self.keys(client_id))

    def ack(self, client_id, packet_id):
        return self.ack_script(keys=self.keys(client_id), args=[packet_id])

    def drop(self, client_id):
        return self.drop_script(keys=self.keys(client_id))
