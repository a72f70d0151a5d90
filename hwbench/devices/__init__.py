"""Where files are run: transports (how a device is reached), device files, and what a device is."""

from hwbench.devices.base import Address, CommandResult, Process, Transport, TransportKind, transports
from hwbench.devices.device import Device, load_device
from hwbench.devices.lease import Holder, holder, leased
from hwbench.devices.probe import Cpu, Probe, conditions, probe_device

__all__ = [
    "Address",
    "CommandResult",
    "Cpu",
    "Device",
    "Holder",
    "Probe",
    "Process",
    "Transport",
    "TransportKind",
    "conditions",
    "holder",
    "leased",
    "load_device",
    "probe_device",
    "transports",
]
