"""Settings of publishers and subscribers: QoS, on and off times, reconnects, slow readers, retained messages."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from orderlab.model.errors import InputError
from orderlab.sim.mqtt.clients.bursts import Pattern
from orderlab.sim.mqtt.rules.inflight_window import UNLIMITED
from orderlab.sim.mqtt.rules.qos import parse_shares
from orderlab.sim.systems.settings import Settings


class ClientSettings(Settings):
    """How clients behave. By default: one QoS, a steady rate, everyone stays and reads at once."""

    rate: float = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    """Messages per second and publisher; with on and off times, while it is on."""
    publish_on_s: float | None = Field(default=None, ge=0.001, le=86_400)
    publish_off_s: float | None = Field(default=None, ge=0.001, le=86_400)
    """Publishers publish for a while and are silent for a while; by default they never stop."""
    publish_pattern: Pattern = "regular"
    """Of on and off times: exactly as long, at a phase of each publisher's own; exponential; or the same for all at once."""
    qos: int = Field(default=1, ge=0, le=2)
    """Of publishers and subscriptions. QoS 0 is neither stored nor acknowledged."""
    publish_qos: str = ""
    """Shares of the publishers by QoS, ``0=0.2 1=0.5 2=0.3``; by default all have ``qos``."""
    subscription_qos: str = ""
    """Shares of the subscriptions by granted QoS, likewise. A delivery has the lower QoS of the two."""
    receive_maximum: int = Field(default=UNLIMITED, ge=1, le=UNLIMITED)
    """Of every subscriber: how many PUBLISH packets it takes without having acknowledged one."""
    slow_share: float = Field(default=0.0, ge=0, le=1)
    """Of the subscribers, how many read slowly all the time."""
    slow_read_ms: float = Field(default=50.0, gt=0, le=3_600_000)
    """Between two packets that a slow one reads."""
    offline_share: float = Field(default=0.0, ge=0, le=1)
    """Of the subscribers, how many lose their connection again and again."""
    online_s: float = Field(default=0.5, ge=0.001, le=86_400)
    offline_s: float = Field(default=0.2, ge=0.001, le=86_400)
    """How long they are with and without a connection."""
    reconnect_pattern: Literal["exponential", "regular", "together"] = "exponential"
    """Of those times: exponential around these means; exactly as long, at a phase of each subscriber's own; or all are lost
    at once, as when a load balancer restarts, and come back after exponential times."""
    clean_start_share: float = Field(default=0.0, ge=0, le=1)
    """Of their connects, how many have Clean Start 1: the session ends, a new one begins."""
    takeover_share: float = Field(default=0.0, ge=0, le=1)
    """Of their connects, how many come, to another broker if there is one, while the client is still connected."""
    session_expiry_s: float | None = Field(default=None, ge=0, le=2**32 - 1)
    """Session Expiry Interval of every subscriber; by default sessions do not expire."""
    resubscribe: bool = False
    """Whether subscribers send SUBSCRIBE after every CONNECT, as many clients do, though their session has it."""
    retained_share: float = Field(default=0.0, ge=0, le=1)
    """Of the publishers, how many set RETAIN on all that they publish."""
    retained_clear_every: int = Field(default=0, ge=0)
    """Of what those publish, every so-manieth message is empty and removes the retained one; 0: none."""
    retain_handling: Literal[0, 1, 2] = 0
    """Of subscriptions: retained messages at every SUBSCRIBE, only where the subscription is new, or never."""
    retain_as_published: bool = False
    """Of subscriptions: whether what is sent on keeps its RETAIN flag."""

    @field_validator("retain_handling", mode="before")
    @classmethod
    def _a_number(cls, given: object) -> object:
        return int(given) if isinstance(given, str) and given.isdecimal() else given

    @property
    def sessions_end(self) -> bool:
        """Whether a session may end in a run."""
        return self.clean_start_share > 0 or self.session_expiry_s is not None

    @model_validator(mode="after")
    def _movers_exist(self) -> ClientSettings:
        for name in ("clean_start_share", "takeover_share"):
            if getattr(self, name) and not self.offline_share:
                raise ValueError(f"{name} is of the connects of those who come and go; set offline_share above 0")
        return self

    @model_validator(mode="after")
    def _bursts_have_both(self) -> ClientSettings:
        on_s, off_s = self.publish_on_s, self.publish_off_s
        if (on_s is None) != (off_s is None):
            raise ValueError("publish_on_s and publish_off_s go together; set both or neither")
        if on_s is not None and on_s * self.rate < 1:
            raise ValueError(f"publish_on_s {on_s:g} is shorter than the time between two messages; set rate to 1/{on_s:g} at least")
        if on_s is None and self.publish_pattern != "regular":
            raise ValueError("publish_pattern is of on and off times; set publish_on_s and publish_off_s")
        return self

    @model_validator(mode="after")
    def _shares_add_up(self) -> ClientSettings:
        for name in ("publish_qos", "subscription_qos"):
            try:
                if getattr(self, name):
                    parse_shares(name, getattr(self, name))
            except InputError as error:
                raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _somebody_subscribes_later(self) -> ClientSettings:
        if self.retained_share and not (self.offline_share and (self.resubscribe or self.sessions_end)):
            raise ValueError("nobody subscribes after a publish; set offline_share, and resubscribe=true or clean_start_share")
        return self
