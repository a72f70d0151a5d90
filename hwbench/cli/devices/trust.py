"""``hwbench devices trust``: shows the host key of a device and records it, when it is said to be the right one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli.devices.group import app
from hwbench.cli.devices.remove import confirm
from hwbench.cli.devices.show import Name
from hwbench.cli.output import Json, emit, say
from hwbench.errors import DeviceError, DeviceUnreachable

if TYPE_CHECKING:
    from hwbench.devices.base import Address
    from hwbench.devices.known_hosts import HostKey

Fingerprint = Annotated[
    str | None, typer.Option(metavar="SHA256:...", help="Trust the host key if this is its fingerprint; do not ask.")
]


@app.command()
def trust(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Trust the key that the host shows; do not ask.")] = False,
    fingerprint: Fingerprint = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also where another key is known.")] = False,
    as_json: Json = False,
) -> None:
    """Show the SHA256 fingerprint of a device's host key, and record the key once it was said to be the right one.

    Only for devices over SSH; a phone asks for itself, in a dialog on its screen.
    """
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    device = load_device(Workspace.find(), name)
    values: dict[str, object] = {"device": name, "transport": device.transport_name}
    if device.transport_name != "ssh":
        reason = (
            "this machine" if device.transport_name == "local" else "the phone asks on its screen for what it needs"
        )
        say(f"device {name!r} has no host key to trust: {reason}")
        emit(values | {"host": None, "kind": None, "fingerprint": None, "file": None, "known": True}, as_json=as_json)
        return
    shown = Shown.of(device.address)
    file = None
    if not shown.known:
        approve(shown, yes, fingerprint, replace, f"hwbench devices trust {name}")
        file = str(_record(device.address, shown))
        _tell_next(device.address, name)
    key = shown.key
    values |= {"host": key.host, "kind": key.kind, "fingerprint": key.sha256, "file": file, "known": shown.known}
    emit(values, as_json=as_json)


@dataclass(frozen=True)
class Shown:
    """The key of the first host on the way that is not known, or of the device; and what files know of that host."""

    key: HostKey
    others: tuple[str, ...]
    known: bool
    revoked: bool

    @classmethod
    def of(cls, address: Address) -> Shown:
        """Asks the hosts.

        Raises:
            DeviceUnreachable: One does not answer.
        """
        from hwbench.devices.known_hosts import known
        from hwbench.devices.route import route
        from hwbench.devices.ssh import fetch_host_key

        key = fetch_host_key(address)
        files = next(hop.known_hosts for hop in route(address) if hop.name == key.host)
        said = known(key.host, files)
        others = tuple(f"{other.kind} {other.sha256} ({place})" for other, place in said.keys.items() if other != key)
        revoked = key.data in said.revoked
        return cls(key, others, key in said.keys and not revoked, revoked)

    def __str__(self) -> str:
        return f"{self.key.host} shows {self.key.kind} {self.key.sha256}"


def approve(shown: Shown, yes: bool, fingerprint: str | None, replace: bool, command: str) -> None:
    """Has it said that a key is the right one: by its fingerprint, by ``yes``, or on the terminal.

    Args:
        shown: What the host shows; it is not known.
        yes: It was said on the command line.
        fingerprint: What it must be.
        replace: It was said that it may be another than the known one.
        command: Does the same once more; with an option of these.

    Raises:
        DeviceError: It is another one than expected, or there is nobody to ask.
    """
    say(str(shown))
    if shown.revoked:
        raise DeviceError(f"{shown}, which was revoked; nothing is recorded")
    if fingerprint is not None and fingerprint != shown.key.sha256:
        raise DeviceError(
            f"expected the fingerprint {fingerprint}, {shown}; nothing is recorded. Compare with the device's own: "
            "for key in /etc/ssh/ssh_host_*.pub; do ssh-keygen -lf $key; done"
        )
    if shown.others and not replace:
        raise DeviceError(
            f"{shown}, expected {'; '.join(shown.others)}: it was set up anew, or someone else answers for it. If you "
            f"know that it is right: {command} --replace --fingerprint {shown.key.sha256}"
        )
    if yes or fingerprint is not None:
        return
    say("compare it with the device's own, there: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    if not sys.stdin.isatty():
        raise DeviceUnreachable(
            f"the host key of {shown.key.host} is not known: {shown.key.kind} {shown.key.sha256}; if it is the right "
            f"one: {command} --fingerprint {shown.key.sha256}"
        )
    confirm("trust it?", False, "--yes")


def _record(address: Address, shown: Shown) -> object:
    from hwbench.devices.ssh import trust as record

    return record(address, shown.key)


def _tell_next(address: Address, name: str) -> None:
    """After a jump host comes the one behind it."""
    try:
        behind = Shown.of(address)
    except DeviceUnreachable as error:
        say(str(error))
        return
    say(f"next: hwbench devices {'check' if behind.known else 'trust'} {name}")


def trust_first(address: Address, fingerprint: str | None, command: str) -> None:
    """Has every unknown host on the way approved, before a device is reached for the first time.

    Raises:
        DeviceUnreachable: One does not answer, or is not trusted; the command that does is named.
    """
    from hwbench.devices.route import route

    for _ in route(address):
        shown = Shown.of(address)
        if shown.known:
            return
        approve(shown, False, fingerprint, False, command)
        _record(address, shown)
