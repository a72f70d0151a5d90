"""The transports that device files may name already and that cannot be opened yet."""

from __future__ import annotations

from collections.abc import Callable

from hwbench.devices.base import Address, Transport, TransportKind, transports
from hwbench.errors import DeviceUnreachable


def _not_built(transport: str) -> Callable[[Address], Transport]:
    def connect(address: Address) -> Transport:
        raise DeviceUnreachable(
            f"device {address.name!r}: the {transport} transport is not built yet; "
            "this machine can be measured: --device local"
        )

    return connect


transports.register("ssh")(
    TransportKind(
        _not_built("ssh"),
        {"host": str, "port": int, "user": str, "identity": str, "known_hosts": str, "agent": bool},
        ("host",),
    )
)
