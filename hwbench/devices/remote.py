"""The transports that device files may name already and that cannot be opened yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hwbench.devices.base import Option, Transport, TransportKind, transports
from hwbench.errors import DeviceUnreachable


def _not_built(transport: str) -> Callable[[str, Mapping[str, Option]], Transport]:
    def connect(name: str, options: Mapping[str, Option]) -> Transport:
        raise DeviceUnreachable(
            f"device {name!r}: the {transport} transport is not built yet; this machine can be measured: --device local"
        )

    return connect


transports.register("ssh")(
    TransportKind(
        _not_built("ssh"), {"host": str, "port": int, "user": str, "identity": str, "known_hosts": str}, ("host",)
    )
)
transports.register("adb")(TransportKind(_not_built("adb"), {"serial": str, "host": str, "port": int}))
