"""Where a device is, as it is typed: ``--ssh [USER@]HOST[:PORT]``, ``--adb [SERIAL]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.devices.base import Option

# One word each, which no program can take for an option. A host in brackets is an IPv6 address; a bare one with more
# than one colon is one without a port.
_SSH = re.compile(
    r"(?:(?P<user>[^\s@-][^\s]*)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s@:\[\]/-][^\s@:\[\]/]*))(?::(?P<port>[0-9]{1,5}))?"
)
_BARE_V6 = re.compile(r"(?:(?P<user>[^\s@-][^\s]*)@)?(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(%\w+)?)")
_ADB_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]-][^\s:\[\]]*):(?P<port>[0-9]{1,5})")
_SERIAL = re.compile(r"[!-,.-~][!-~]*")
MAX_PORT = 65535


def ssh_options(text: str) -> dict[str, Option]:
    """The options of a device file for ``[USER@]HOST[:PORT]``; HOST may be a name of ``~/.ssh/config``.

    Raises:
        InvalidValue: It is none.
    """
    found = _SSH.fullmatch(text) or _BARE_V6.fullmatch(text)
    if found is None or not text.isprintable():
        raise InvalidValue(f"--ssh: expected [USER@]HOST[:PORT], such as pi@pi5.local or [fe80::1]:22, got {text!r}")
    said = found.groupdict()
    options: dict[str, Option] = {"host": said.get("host") or said["v6"]}
    if said["user"]:
        options["user"] = said["user"]
    if said.get("port"):
        options["port"] = _port("--ssh", said["port"])
    return options


def adb_options(text: str) -> dict[str, Option]:
    """The options of a device file for a serial or HOST:PORT; none for an empty text: the only one attached.

    Raises:
        InvalidValue: It is neither.
    """
    if not text:
        return {}
    place = _ADB_PLACE.fullmatch(text)
    if place:
        return {"host": place["host"].strip("[]"), "port": _port("--adb", place["port"])}
    if not _SERIAL.fullmatch(text):
        raise InvalidValue(f"--adb: expected a serial or HOST:PORT as adb devices lists them, got {text!r}")
    return {"serial": text}


def _port(option: str, text: str) -> int:
    if not 0 < int(text) <= MAX_PORT:
        raise InvalidValue(f"{option}: expected a port from 1 to {MAX_PORT}, got {text}")
    return int(text)
