"""Whether the container of this process leaves the local device as many processors as threads run."""

from __future__ import annotations

from hwbench import control_group
from hwbench.devices.device import Device
from hwbench.errors import InvalidValue
from hwbench.specs import LOCAL  # its transport is called so, too


def quota(device: Device) -> float | None:
    """Processors that the limits of the container leave a device, such as 1.5; None: all of them, as far as is known.

    The kernel holds all threads still for the rest of a period, 0.1 s mostly, in which more was used.
    """
    return control_group.OWN.share() if device.transport_name == LOCAL else None


def require_quota(device: Device, threads: int) -> None:
    """Refuses threads that would be held still while they are timed; one thread always runs.

    Raises:
        InvalidValue: The container leaves fewer processors than threads.
    """
    share = quota(device)
    if share is not None and threads > max(1.0, share):
        raise InvalidValue(
            f"{threads} threads were asked for, the container of this process has {share:.3g} processors: times would "
            "include pauses; ask for fewer threads, or start the container with more (docker run --cpus)"
        )
