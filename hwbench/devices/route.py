"""The way to a device over SSH, as its device file and ``~/.ssh/config`` say it: the hosts in between, then the device.

What the device file says counts before the configuration, as the command line does for ``ssh``; also where a line of
the configuration refers to it, such as ``%p`` in ProxyCommand.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwbench.devices.base import Address
from hwbench.devices.known_hosts import SSH_PORT, host_name
from hwbench.devices.ssh_config import SshConfig
from hwbench.errors import InvalidValue
from hwbench.user_folders import with_home

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
# A chain of hosts that name each other as their jump host has no end.
MOST_HOPS = 8
_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
_TOKEN = re.compile(r"%(.?)", re.DOTALL)
# A variable of the environment, or a token.
_VARIABLE = re.compile(r"\$\{([A-Za-z0-9_]+)\}|%.?", re.DOTALL)


@dataclass(frozen=True)
class Hop:
    """One SSH server on the way.

    Args:
        host: Its name or number, as sockets take it.
        port: Of the server.
        user: Who logs in.
        keys: Files of private keys to offer, in this order.
        only_keys: Offer no other keys that an agent may hold.
        agent: Let an SSH agent sign.
        known_hosts: Files that say which keys the host may show.
        alias: The name that those files have for it, where it is another than ``host``.
        command: A command whose stdin and stdout lead there, instead of a connection.
    """

    host: str
    port: int
    user: str
    keys: tuple[Path, ...] = ()
    only_keys: bool = False
    agent: bool = False
    known_hosts: tuple[Path, ...] = ()
    alias: str = ""
    command: str = ""

    @property
    def name(self) -> str:
        """How files of known hosts name it."""
        return self.alias.lower() or host_name(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def route(address: Address) -> tuple[Hop, ...]:
    """The hosts on the way, the device last.

    Raises:
        InvalidFile: ``~/.ssh/config`` cannot be read.
        InvalidValue: The device is to be used as root, and its file does not say so; a chain of jump hosts has no end;
            the user of this process has no name, or no home.
    """
    config = SshConfig(_home() / ".ssh" / "config")
    options = address.options
    host = _checked(str(options["host"]), _HOST, "host", address)
    said = config.lookup(host, _own(address, options.get("user"), options.get("port")))
    device = _hop(host, said, address, str(options.get("identity", "")))
    if device.user == "root" and options.get("user") != "root":
        mend = address.mend('user = "USER" under [ssh]', "--ssh USER@HOST")
        raise InvalidValue(
            f"device {address.name!r}: expected a user who may do less than root; {mend}, "
            "with root for USER if it must be"
        )
    jump = str(options.get("jump", said.get("proxyjump", "")))
    return (*_jumps(jump, config, address, MOST_HOPS), device)


def _home() -> Path:
    """Of the user of this process, who has a name, too: both may stand in a configuration of ssh."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        raise InvalidValue(f"this user ({os.getuid()}) has no name here, which ssh needs: export USER=NAME") from None
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidValue(f"this user ({os.getuid()}) has no home here, which ssh needs: export HOME=DIR") from None


def own_known_hosts(address: Address) -> Path | None:
    """The file of known hosts that belongs to a device: where trust is recorded."""
    if "known_hosts" in address.options:
        return _path(str(address.options["known_hosts"]), address)
    if address.workspace is None:
        return None
    return address.workspace.root / "profiles" / address.name / "known_hosts"


def _jumps(text: str, config: SshConfig, address: Address, left: int) -> Iterator[Hop]:
    """The hops of a list ``[user@]host[:port],...``, each with the jump hosts of its own."""
    if text.lower() in ("", "none"):
        return
    for number, word in enumerate(text.split(",")):
        if not left:
            raise InvalidValue(
                f"device {address.name!r}: more than {MOST_HOPS} jump hosts in a chain; look at ProxyJump"
            )
        user, _, place = word.strip().removeprefix("ssh://").rpartition("@")
        host, port = _host_and_port(place)
        own = _own(address, user or None, port or None)
        said = config.lookup(_checked(host, _HOST, "jump", address), own)
        if not number:
            yield from _jumps(said.get("proxyjump", ""), config, address, left - 1)
        hop = _hop(host, said, address)
        yield replace(hop, command="") if number else hop


def _hop(name: str, said: Mapping[str, Any], address: Address, identity: str = "") -> Hop:
    host = _checked(said.get("hostname", name), _HOST, "host", address)
    port = _port(str(said.get("port", SSH_PORT)), address)
    user = _checked(said.get("user") or getpass.getuser(), _USER, "user", address)
    alias = said.get("hostkeyalias", "")
    command = said.get("proxycommand") or ""
    tokens = {"%": "%", "h": host, "k": alias or name, "n": name, "p": str(port), "r": user}
    jump = said.get("proxyjump", "").rpartition(",")[2].rpartition("@")[2]
    more = tokens | {"j": "" if jump == "none" else _host_and_port(jump)[0]} | _tokens_of_this_machine(tokens)
    given = (
        [identity] if identity else _paths("IdentityFile", dict.fromkeys(said.get("identityfile", [])), more, address)
    )
    keys = tuple(_path(key, address) for key in given) or tuple(Path.home() / ".ssh" / key for key in DEFAULT_KEYS)
    return Hop(
        host=host,
        port=port,
        user=user,
        keys=keys,
        only_keys=bool(identity) or said.get("identitiesonly") == "yes",
        agent=bool(address.options.get("agent", False)),
        known_hosts=_known_hosts(said, more, address),
        alias=alias,
        command=_filled("ProxyCommand", command, tokens, address),
    )


def _own(address: Address, user: Any, port: Any) -> dict[str, str]:
    """What counts before the configuration, in its words."""
    own = {"User": str(user)} if user is not None else {}
    if user is not None:
        _checked(own["User"], _USER, "user", address)
    return own | ({"Port": str(_port(str(port), address))} if port is not None else {})


def _port(text: str, address: Address) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 5 or not 0 < int(text) < 1 << 16:
        raise InvalidValue(f"device {address.name!r}: port: expected a number from 1 to 65535, got {text[:80]}")
    return int(text)


def _tokens_of_this_machine(tokens: Mapping[str, str]) -> dict[str, str]:
    """What the names of files may have beside the tokens of a ProxyCommand."""
    here = socket.gethostname()
    digest = hashlib.sha1("".join((here, *(tokens[token] for token in "hpr"))).encode(), usedforsecurity=False)
    return {
        "C": digest.hexdigest(),
        "L": here.partition(".")[0],
        "d": str(Path.home()),
        "i": str(os.getuid()),
        "l": here,
        "u": getpass.getuser(),
    }


def _filled(keyword: str, text: str, tokens: Mapping[str, str], address: Address) -> str:
    """A value with its tokens filled in, as ssh does it: ``%h %p %r %n`` and ``%%`` are of each."""
    for token in _TOKEN.findall(text):
        if token not in tokens:
            *names, percent = (f"%{name}" for name in sorted(tokens, key=lambda name: (name == "%", name)))
            raise InvalidValue(
                f"device {address.name!r}: {keyword} in ~/.ssh/config: expected {', '.join(names)} or {percent}, "
                f"got %{token}"
            )
    return _TOKEN.sub(lambda match: tokens[match[1]], text)


def _paths(keyword: str, texts: Iterable[str], tokens: Mapping[str, str], address: Address) -> list[str]:
    """Names of files with their tokens and variables filled in; what comes of a variable is left as it is."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return _filled(keyword, match[0], tokens, address)
        if match[1] not in os.environ:
            raise InvalidValue(
                f"device {address.name!r}: {keyword} in ~/.ssh/config: the environment has no {match[1]}; set it: "
                f"export {match[1]}=..."
            )
        return os.environ[match[1]]

    return [_VARIABLE.sub(value, text) for text in texts]


def _checked(text: str, pattern: re.Pattern[str], key: str, address: Address) -> str:
    """Names reach the commands of ProxyCommand and Match exec: they may hold nothing that a shell takes apart."""
    if not pattern.fullmatch(text):
        raise InvalidValue(f"device {address.name!r}: {key}: expected a plain name, got {text!r}")
    return text


def _known_hosts(said: Mapping[str, Any], tokens: Mapping[str, str], address: Address) -> tuple[Path, ...]:
    own = own_known_hosts(address)
    users = shlex.split(said.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"))
    users = _paths("UserKnownHostsFile", users, tokens, address)
    system = shlex.split(said.get("globalknownhostsfile", SYSTEM_KNOWN_HOSTS))
    named = (with_home(word) for word in (*users, *system) if word != "none")
    return (*([own] if own else []), *named)


def _path(text: str, address: Address) -> Path:
    """A path of a device file, from the workspace on."""
    path = with_home(text)
    return path if path.is_absolute() or address.workspace is None else address.workspace.root / path


def _host_and_port(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port
