from pathlib import Path

LIBRARY = (Path(__file__).parent / "mailbox.lua").read_text()

ACK = """
local cursor = tonumber(redis.call('GET', KEYS[2]) or '0')
if tonumber(ARGV[1]) > cursor then
  redis.call('SET', KEYS[2], ARGV[1], 'EX', 86400)
end
return redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
"""


class Mailbox:
    def __init__(self, redis, user):
        self.redis = redis
        self.user = user
        redis.function_load(LIBRARY, replace=True)
        self._ack = redis.register_script(ACK)

    def send(self, body):
        return self.redis.fcall("mailbox_send", 2, f"{{mail:{self.user}}}:messages", f"{{mail:{self.user}}}:seq", body)

    def fetch(self, after, count=50):
        return self.redis.fcall_ro("mailbox_fetch", 1, f"{{mail:{self.user}}}:messages", after, count)

    def ack(self, seq):
        return self._ack(keys=[f"{{mail:{self.user}}}:messages", f"{{mail:{self.user}}}:cursor"], args=[seq])
