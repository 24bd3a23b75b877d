"""Users of a served node against those of a server: generated rules, and commands of a user under them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orderlab.sim.live import ServerProcess
from orderlab.sim.redis.wire import encode_command
from orderlab.sim.redis.wire.background import InBackground
from orderlab.sim.redis.wire.served_node import ServedNode
from tests.laboratory.conformance.bytes_on_wire import RawConnection

RULES = b"""
on off nopass resetpass >p1 >p2 <p1 <p2 #zz +@all -@all +@read -@write +@string -@string +get -get +set -set +eval
+evalsha +config|get +config -config|set +select|0 +select -@dangerous +@fast ~a* ~b* %R~r* %W~w* %RW~x %R~x %~y %Q~z
%R resetkeys allkeys ~* &c* &d resetchannels allchannels reset (+get_~s*) ( (+@all_%R~t*_&c*) ) clearselectors +nosuch
+@nosuch foo sanitize-payload skip-sanitize-payload +@scripting +@pubsub +@transaction +@connection -@slow +acl
+acl|whoami|x +debug|object +memory|usage +sort +xread +bitfield +mset +@keyspace
""".split()
"""``_`` stands for a blank."""
CALLS = (
    """
get a1/get r1/set r1 v/set w1 v/get w1/set x v get/set r1 v get/set w1 v get/mset a1 1 w2 2/mget a1 r1/mget a1 zz
bitfield r1 get u8 0/bitfield r1 set u8 0 1/bitfield r1 overflow sat get u8 0/bitfield r1 foo/sort a1 by w*
sort a1 by nosort/sort a1 get #/sort r1 store w1/sort r1 store r2/publish c1 x/publish d y/spublish c1 x/publish zz x
eval return(redis.call('get','a1')) 0/eval return(redis.pcall('get','zz')) 0/eval return(1) 5 zz
eval return(redis.call('set',KEYS[1],'v')) 1 r1/eval return(redis.call('set',KEYS[1],'v')) 1 a1
eval return(redis.call('publish','zz','v')) 0/eval return({redis.acl_check_cmd('get','a1')==true}) 0
eval return({redis.acl_check_cmd('set','r1','x')==true,redis.acl_check_cmd('hget')==true}) 0
config get save/config set hz 10/config/config foo/select 0/select 1/acl whoami/acl list/ping/echo x/copy r1 w1
copy w1 r1/rename a1 a2/lmove a1 r1 left left/xread streams s2 0/xadd s1 * a b/xread count 1 streams a s2 0 0
zunionstore w1 2 r1 r2/zunionstore r1 1 r1/object encoding a1/memory usage r1/strlen r1/exists r1 w1/touch w1/del r1
del w1/type w1/append w1 x/getex r1/getdel r1/incr x/dbsize/multi/exec/discard/ssubscribe/hello 2/info x
geosearchstore w1 r1 fromlonlat 1 1 bybox 1 1 km/georadius r1 1 1 1 km store r2/georadius r1 1 1 1 km/lcs a1 r1
getbit w1 1/setbit w1 1 1/hget a1/client getname/client id x/function stats/fcall f 1 zz/watch a1/watch w1/keys *
scan 0/flushdb/nosuch/GET a1/SeT a1 b/wait 0 0/reset/auth u x/auth nobody x/auth p1/auth u p1/auth u p2
""".strip()
    .replace("\n", "/")
    .split("/")
)
ASKED = (
    """
acl list/acl getuser u/acl getuser default/acl log/acl log 2/acl users/acl cat/acl cat write/acl cat slow/acl log reset
acl deluser v/acl deluser u/acl whoami/config set requirepass zz/config set requirepass /acl cat dangerous
""".strip()
    .replace("\n", "/")
    .split("/")
)
_OWN = re.compile(
    rb"addr=\S+ laddr=\S+ fd=\S+|(id|age|idle|qbuf|qbuf-free|argv-mem|multi-mem|rbs|rbp|obl|oll|omem|tot-mem)=\d+|"
    rb"events=\w+"
)
_AGE = re.compile(rb"age-seconds\r\n(\$\d+\r\n|,)\S+\r\n")


@dataclass(frozen=True, slots=True)
class Difference:
    """A reply that differs."""

    before: tuple[bytes, ...]
    argv: tuple[bytes, ...]
    served: object
    server: object


def _comparable(argv: Sequence[bytes], reply: bytes) -> object:
    """A reply without what is a fact of one process, or in the order of a hash."""
    name = argv[0].lower()
    if name == b"hello":
        return re.sub(rb":\d+", b"", reply)
    if name == b"acl":
        text = _OWN.sub(b"", _AGE.sub(b"", reply))
        lines = [
            b" ".join(sorted(line.split(b" "))) for line in text.split(b"\r\n") if line[:1] not in b"$=" or not line
        ]
        return sorted(lines) if argv[1] == b"cat" else lines
    is_own = name in (b"xadd", b"scan", b"keys", b"object", b"memory", b"exec", b"info") and reply[:1] != b"-"
    return b"" if is_own else reply


class _Pair:
    """The same said to both."""

    def __init__(self, ports: Sequence[int], said: list[bytes]) -> None:
        self.connections = [RawConnection("127.0.0.1", port) for port in ports]
        self._said = said

    def say(self, line: str | Sequence[bytes]) -> Difference | None:
        """A command; the difference, if there is one."""
        argv = tuple(line.encode().split(b" ") if isinstance(line, str) else line)
        replies = []
        for connection in self.connections:
            try:
                connection.send(encode_command(argv))
                replies.append(connection.replies(1)[0])
            except (EOFError, ConnectionError):
                replies.append(b"closed")
        self._said.append(b" ".join(argv))
        served, server = (_comparable(argv, reply) for reply in replies)
        return None if served == server else Difference(tuple(self._said[-8:-1]), argv, served, server)


def compare(rounds: int, seed: int, length: int = 30) -> tuple[int, list[Difference]]:
    """How many replies were compared, and the first of each round that differs."""
    draw = random.Random(seed)
    said: list[bytes] = []
    found: list[Difference] = []
    with ServerProcess() as process, InBackground() as background:
        ports = (background.serve(ServedNode).port, process.port)
        for _ in range(rounds):
            owner, admin, caller = (_Pair(ports, said) for _ in range(3))
            owner.say("auth owner x")
            owner.say("acl setuser owner on nopass +@all ~* &*")
            owner.say("acl setuser default on nopass +@all ~* &* clearselectors")
            owner.say("flushall")
            owner.say("acl deluser u v")
            owner.say("acl log reset")
            admin.say("auth owner x")
            for at in range(length):
                difference = _step(draw, at, admin, caller)
                if difference is not None:
                    found.append(difference)
                    break
            for pair in (owner, admin, caller):
                for connection in pair.connections:
                    connection.close()
    return len(said), found


def _step(draw: random.Random, at: int, admin: _Pair, caller: _Pair) -> Difference | None:
    def rules(count: int) -> list[bytes]:
        return [draw.choice(RULES).replace(b"_", b" ") for _ in range(count)]

    if at == 0:
        protocol = draw.choice("23")
        begun = [b"acl", b"setuser", b"u", b"on", b"nopass", b"+@all", *rules(draw.randrange(5))]
        said = admin.say(f"hello {protocol}") or caller.say(f"hello {protocol}") or admin.say(begun)
        return said or caller.say("auth u x")
    kind = draw.random()
    if kind < 0.2:
        user = draw.choice((b"u", b"u", b"v", b"default"))
        return admin.say([b"acl", b"setuser", user, *rules(draw.randrange(1, 6))])
    if kind < 0.3:
        return admin.say(draw.choice(ASKED))
    called = draw.choice(CALLS)
    return admin.say(f"acl dryrun u {called}") if kind < 0.4 else caller.say(called)
