"""Where files are run: transports (how a device is reached), device files, and what a device is."""

from hwbench.devices.base import Address, CommandResult, Process, Transport, TransportKind, transports
from hwbench.devices.control import Conditions, Control, controlled
from hwbench.devices.device import Device, load_device
from hwbench.devices.lease import Holder, holder, holders, leased
from hwbench.devices.probe import Cluster, Cpu, Probe, conditions, probe_device
from hwbench.devices.state import DeviceState, read_state
from hwbench.devices.unit import occupant, occupied

__all__ = [
    "Address",
    "Cluster",
    "CommandResult",
    "Conditions",
    "Control",
    "Cpu",
    "Device",
    "DeviceState",
    "Holder",
    "Probe",
    "Process",
    "Transport",
    "TransportKind",
    "conditions",
    "controlled",
    "holder",
    "holders",
    "leased",
    "load_device",
    "occupant",
    "occupied",
    "probe_device",
    "read_state",
    "transports",
]
