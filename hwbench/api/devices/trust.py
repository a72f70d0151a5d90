"""``hwbench.trust_device``: shows the host key of a device and records it, when it is said to be the right one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request
from hwbench.errors import DeviceError, DeviceUnreachable, InvalidValue

if TYPE_CHECKING:
    from hwbench.devices import Device
    from hwbench.devices.base import Address
    from hwbench.devices.known_hosts import HostKey
    from hwbench.workspace import Workspace

FINGERPRINT_HELP = "Trust the host key if this is its fingerprint; do not ask."
REPLACE_HELP = "Also where another key is known."


@request
class TrustDeviceRequest:
    """Show the SHA256 fingerprint of a device's host key, and record the key once it was said to be the right one.

    Only for devices over SSH; a phone asks for itself, in a dialog on its screen.
    """

    name: str = option(argument=True, metavar="NAME", names="device", help="Device: a folder of profiles/.")
    yes: bool = option(default=False, help="Trust the key that the host shows; do not ask.")
    fingerprint: str | None = option(default=None, metavar="SHA256:...", help=FINGERPRINT_HELP)
    replace: bool = option(default=False, help=REPLACE_HELP)


@dataclass(frozen=True)
class TrustDeviceResult:
    """The host key of a device; ``file``: where it was recorded just now; ``known``: nothing was to be done.

    Of a device that has no host key, all but its name and its transport is None.
    """

    device: str
    transport: str
    host: str | None = None
    kind: str | None = None
    fingerprint: str | None = None
    file: Path | None = None
    known: bool = True

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices trust --json`` prints."""
        return asdict(self) | {"file": None if self.file is None else str(self.file)}


def trust_device(
    request: TrustDeviceRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> TrustDeviceResult:
    """Shows the key of the first unknown host on the way to a device, and records the key once it is confirmed.

    Confirmed by ``yes``, by ``fingerprint``, or by the listener, which is asked.

    Raises:
        UnknownName: No such device.
        DeviceUnreachable: The host does not answer, or there is nobody to ask.
        DeviceError: The key is another one than expected, or was revoked.
    """
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    device = load_device(Workspace.at(workspace), request.name)
    if device.transport_name != "ssh":
        return _without_key(device, listener)
    shown = ShownHostKey.of(device.address)
    file = None
    if not shown.known:
        answer = HostKeyAnswer(request.yes, request.fingerprint, request.replace)
        approve(shown, answer, f"hwbench devices trust {request.name}", listener)
        file = _record(device.address, shown)
        _tell_next(device, listener)
    key = shown.key
    return TrustDeviceResult(device.name, "ssh", key.host, key.kind, key.sha256, file, shown.known)


def _without_key(device: Device, listener: Listener) -> TrustDeviceResult:
    reasons = {"local": "this machine", "adb": "the phone asks on its screen for what it needs"}
    reason = reasons.get(device.transport_name, f"it is reached by the transport {device.transport_name!r}, not by SSH")
    listener.say(f"device {device.name!r} has no host key to trust: {reason}")
    return TrustDeviceResult(device.name, device.transport_name)


@dataclass(frozen=True)
class ShownHostKey:
    """The key of the first host on the way that is not known, or of the device; and what files know of that host."""

    key: HostKey
    others: tuple[str, ...]
    known: bool
    revoked: bool

    @classmethod
    def of(cls, address: Address) -> ShownHostKey:
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


@dataclass(frozen=True)
class HostKeyAnswer:
    """What a request says of a host key beforehand.

    Args:
        yes: The key that the host shows is the right one.
        fingerprint: Of the right key.
        replace: The key may be another one than the known one.
    """

    yes: bool = False
    fingerprint: str | None = None
    replace: bool = False


def approve(shown: ShownHostKey, answer: HostKeyAnswer, command: str, listener: Listener = SILENT) -> None:
    """Has it said that a key is the right one: by its fingerprint, by ``yes``, or by the listener.

    Args:
        shown: What the host shows; it is not known.
        answer: What the request says.
        command: Does the same once more; with an option of these.
        listener: Sees the key, and is asked.

    Raises:
        DeviceError: It is another one than expected, or there is nobody to ask.
        InvalidValue: The listener says no.
    """
    listener.say(str(shown))
    if shown.revoked:
        raise DeviceError(f"{shown}, which was revoked; nothing is recorded")
    if answer.fingerprint not in (None, shown.key.sha256):
        raise DeviceError(
            f"expected the fingerprint {answer.fingerprint}, {shown}; nothing is recorded. Compare with the "
            "device's own: for key in /etc/ssh/ssh_host_*.pub; do ssh-keygen -lf $key; done"
        )
    if shown.others and not answer.replace:
        raise DeviceError(
            f"{shown}, expected {'; '.join(shown.others)}: it was set up anew, or someone else answers for it. If you "
            f"know that it is right: {command} --replace --fingerprint {shown.key.sha256}"
        )
    if not answer.yes and answer.fingerprint is None:
        _ask(shown, command, listener)


def _ask(shown: ShownHostKey, command: str, listener: Listener) -> None:
    listener.say("compare it with the device's own, there: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    trusted = listener.confirm("trust it?")
    if trusted is None:
        raise DeviceUnreachable(
            f"the host key of {shown.key.host} is not known: {shown.key.kind} {shown.key.sha256}; if it is the right "
            f"one: {command}{' --replace' * bool(shown.others)} --fingerprint {shown.key.sha256}"
        )
    if not trusted:
        raise InvalidValue("nothing was done")


def _record(address: Address, shown: ShownHostKey) -> Path:
    from hwbench.devices.ssh import trust as record

    return record(address, shown.key)


def _tell_next(device: Device, listener: Listener) -> None:
    """After a jump host comes the one behind it."""
    try:
        behind = ShownHostKey.of(device.address)
    except DeviceUnreachable as error:
        listener.say(str(error))
        return
    listener.say(f"next: hwbench devices {'check' if behind.known else 'trust'} {device.name}")


def trust_first(address: Address, answer: HostKeyAnswer, command: str, listener: Listener = SILENT) -> None:
    """Has every unknown host on the way approved, before a device is reached for the first time.

    An answer with a fingerprint is that for the first of them: no other host has the same key.

    Raises:
        DeviceUnreachable: One does not answer, or is not trusted; the command that does is named.
    """
    from hwbench.devices.route import route

    for _ in route(address):
        shown = ShownHostKey.of(address)
        if shown.known:
            return
        approve(shown, answer, command, listener)
        _record(address, shown)
        if answer.fingerprint is not None:
            answer = HostKeyAnswer()
