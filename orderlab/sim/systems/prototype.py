"""The one-node prototype: broker, Kafka, store and the clients of the test on the cores of one machine.

The published figures of the prototype name one node and no other, so by default everything shares its cores;
``shared_host=false`` gives the broker all of them and every server a machine of its own.
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field

from orderlab.model.errors import InputError
from orderlab.sim.costs import Costs, HostCosts, load_costs
from orderlab.sim.engine.stations import Station, Tenant
from orderlab.sim.mqtt.broker.persistence import Persistence
from orderlab.sim.mqtt.world import Fabric
from orderlab.sim.systems.device_settings import DeviceSettings
from orderlab.sim.systems.tbmq_p2p import DeviceSystem


class PrototypeSettings(DeviceSettings):
    """What the prototype has otherwise than the cluster."""

    publishers: int = Field(default=20_000, ge=1, le=2_000_000)
    broker_cores: int = Field(default=12, ge=1, le=1024)
    kafka_brokers: int = Field(default=1, ge=1, le=100)
    linger_ms: float = Field(default=5.0, ge=0, le=10_000)
    costs: str = "prototype"
    shared_host: bool = True
    """Whether all processes share the cores of the broker's machine."""
    warm_up_s: float = Field(default=0.3, ge=0, le=3600)
    duration_s: float = Field(default=0.8, ge=0.001, le=86_400)


P = TypeVar("P", bound=PrototypeSettings)


class PrototypeSystem(DeviceSystem[P]):
    """A system on one machine."""

    def _costs(self) -> Costs:
        costs = load_costs(self.settings.costs)
        if costs.host is None:
            raise InputError(f"costs {self.settings.costs}: this system needs a table [host]; see prototype.toml")
        self.host_costs: HostCosts = costs.host
        self.machine = Station(self.settings.broker_cores)
        other_us = costs.host.other_us / 2 if self.settings.shared_host else 0.0
        broker = costs.broker.model_copy(
            update={"ingest_us": costs.broker.ingest_us + other_us, "deliver_us": costs.broker.deliver_us + other_us}
        )
        return costs.model_copy(update={"broker": broker})

    def _station(self, kind: str, cores: int) -> Station:
        return Tenant(self.machine) if self.settings.shared_host else Station(cores)

    def _start(self, fabric: Fabric, persistence: Persistence) -> None:
        if self.settings.shared_host:
            fabric.kafka.stations = [Tenant(self.machine) for _ in fabric.kafka.stations]
            for node in fabric.nodes:
                node.cpu = Tenant(self.machine)
            fabric.other_stations["machine"] = self.machine
        super()._start(fabric, persistence)
