"""The contract of a lock with a lease and a fencing token, as its owner would write it."""

from __future__ import annotations

from typing import NamedTuple

from orderlab.contract import Call, Contract, above, law


class Lock(NamedTuple):
    token: int = 0  # 0: free
    until_ms: int = 0
    last: int = 0  # the newest token that was ever given


class Lease(Contract):
    """acquire(ttl_ms) -> token, or None while somebody holds it; renew(token, ttl_ms), release(token) -> 1, or 0."""

    operations = {"acquire": ("ttl_ms",), "renew": ("token", "ttl_ms"), "release": ("token",)}

    def initial(self):
        return Lock()

    def elapse(self, state, now_ms):
        return state._replace(token=0, until_ms=0) if state.token and now_ms > state.until_ms else state

    def outcomes(self, state, call, now_ms):
        if state.token and now_ms == state.until_ms:  # in its last millisecond a lease lives or has lapsed
            yield from self.outcomes(self.elapse(state, now_ms + 1), call, now_ms)
        if call.name == "acquire":
            if state.token:
                yield None, state
            else:
                yield above(state.last), lambda token: Lock(token, now_ms + call["ttl_ms"], token)
        elif state.token != call["token"]:
            yield 0, state
        elif call.name == "renew":
            yield 1, state._replace(until_ms=now_ms + call["ttl_ms"])
        else:
            yield 1, state._replace(token=0, until_ms=0)

    def deadlines_ms(self, state):
        return [state.until_ms] if state.token else []

    def ranges(self):
        return {"ttl_ms": (1, 400 * 24 * 3600 * 1000)}

    def calls(self, client, seen):
        yield Call.of("acquire", ttl_ms=1000)
        for token in dict.fromkeys(one.reply for one in reversed(seen) if one.call.name == "acquire" and one.reply):
            yield Call.of("release", token=token)
            yield Call.of("renew", token=token, ttl_ms=1000)
        yield Call.of("acquire", ttl_ms=3000)

    @law("mutual-exclusion", "while a lease lives nobody else is granted one, and none that has lapsed is renewed")
    def mutual_exclusion(self, before, call, reply, now_ms):
        if call.name == "acquire":
            return reply is None if before.token else None
        return not reply if call.name == "renew" and before.token != call["token"] else None

    @law("fencing", "each token is greater than every earlier one")
    def fencing(self, before, call, reply, now_ms):
        return reply > before.last if call.name == "acquire" and isinstance(reply, int) else None

    @law("own-release", "nobody ends the lease of another")
    def own_release(self, before, call, reply, now_ms):
        return not reply if call.name == "release" and before.token != call["token"] else None

    @law("recovery", "a lock that nobody holds is granted")
    def recovery(self, before, call, reply, now_ms):
        return reply is not None if call.name == "acquire" and not before.token else None
