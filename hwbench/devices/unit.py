"""Which unit it is that answers: a board has several addresses, and behind one address boards change.

An address (``ssh:pi5.local:22``, ``adb:SERIAL``) is how a device was reached. A unit is the thing itself, whose names
are known after the first contact: ``unit:`` of its serial number or machine id, which stays; ``boot:`` of what its
kernel drew when it was started, which containers and their host have in common and which is another one after each
start. ``occupied`` takes the lease of the address first, then one for each name of the unit, so that no two processes
have one board, whatever each of them calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hwbench.devices.base import Transport
from hwbench.devices.lease import Holder, holder, leased
from hwbench.devices.probe import Probe, probe_device

Report = Callable[[str], None]

# Read without starting the whole probe, which takes seconds on a slow device.
BOOT_ID = "/proc/sys/kernel/random/boot_id"
BOOT_TIME_LIMIT_S = 30.0


def unit_names(probe: Probe) -> tuple[str, ...]:
    """The names by which a unit is leased, in the order in which they are taken; none where the device tells nothing.

    Two processes that meet at one name meet at the first that they have in common, so they never refuse each other.
    """
    named = (("boot", probe.boot), ("unit", probe.unit))
    return tuple(f"{kind}:{value}" for kind, value in named if value)


@contextmanager
def unit_leased(probe: Probe, address: str) -> Iterator[None]:
    """Holds a unit by all its names while the block runs; nothing is held of one that tells none.

    Args:
        probe: Of the device.
        address: The identity of the transport, for the message to whoever comes second.

    Raises:
        DeviceBusy: Another process or thread holds the unit, by this address or another one.
        WorkspaceError: The state folder cannot be written.
    """
    with ExitStack() as stack:
        for name in unit_names(probe):
            stack.enter_context(leased(name, address))
        yield


@contextmanager
def occupied(transport: Transport, report: Report | None = None) -> Iterator[Probe]:
    """Holds a device while the block runs, by its address and by its unit; gives what the device is.

    A device that tells neither serial number, machine id nor boot id is held by its address alone; ``report`` is told.
    One that is started anew within the block stays held by address and serial number.

    A lease counts for this user on this machine. Of other machines and users ``report`` is told what they run there
    when the block begins; nobody is refused for it, and what they begin later is not seen.

    Raises:
        DeviceBusy: Another process or thread holds it, by this address or another one; says which, and since when.
        DeviceError: It does not describe itself.
        DeviceLost: It went away.
        WorkspaceError: The state folder cannot be written.
    """
    address = transport.identity
    with leased(address):
        probe = probe_device(transport)
        if not unit_names(probe) and report is not None:
            report(
                f"{address} tells neither a serial number nor a boot id: it is held by this address alone, and whoever "
                "reaches it by another address would measure at the same time"
            )
        with unit_leased(probe, address):
            # Not of this user on this machine, who has the lease: of no other user and machine anything is known here.
            others: Sequence[int] = getattr(transport, "others", ())
            if others and report is not None:
                report(
                    f"{address}: another hwbench runs something there, from another machine or as another user, or was "
                    "cut off within the last minute; two at a time measure each other: wait until it has ended, it is "
                    f"this process there: ps -fp {','.join(map(str, others))}"
                )
            yield probe


def occupant(transport: Transport, probe: Probe) -> Holder | None:
    """Who holds a device at present, by this address or another one; None when nobody does."""
    return next(filter(None, map(holder, (transport.identity, *unit_names(probe)))), None)


def boot_of(transport: Transport) -> str:
    """What the kernel of a device drew when it was started; empty where it does not tell.

    Raises:
        DeviceLost: The device went away.
    """
    result = transport.run(["cat", BOOT_ID], timeout_s=BOOT_TIME_LIMIT_S)
    return result.stdout.strip() if result.ok else ""
