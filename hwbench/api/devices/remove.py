"""``hwbench.remove_device``: a device file is deleted; the latency tables of the device stay unless they are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.workspace import Workspace


@request
class RemoveDeviceRequest:
    """Remove a device: its file, with --tables its latency tables as well. What was measured stays in the store."""

    name: str = option(argument=True, metavar="NAME", names="device", help="Device: a folder of profiles/.")
    tables: bool = option(default=False, help="Delete its latency tables as well.")
    yes: bool = option(default=False, help="Do not ask.")


@dataclass(frozen=True)
class RemoveDeviceResult:
    """What was deleted and which tables stay, as paths below the workspace."""

    device: str
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices remove --json`` prints."""
        return {"device": self.device, "removed": list(self.removed), "kept": list(self.kept)}


def remove_device(
    request: RemoveDeviceRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> RemoveDeviceResult:
    """Deletes the file of a device, its host keys, and its tables where that is asked for; ends its laboratory.

    The file is deleted last: after an interruption the same request finds the device and deletes what is left. The
    listener is asked to confirm, unless the request says ``yes``.

    Raises:
        UnknownName: No such device.
        InvalidValue: The device comes with hwbench, or nobody confirms.
    """
    from hwbench.devices import virtual
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    path = _removable(workspace, request.name)
    tables = sorted(path.parent.glob("*.csv"))
    keys = [path for path in [path.with_name("known_hosts")] if path.is_file()]
    going, staying = [path, *keys, *(tables if request.tables else [])], [] if request.tables else tables
    removed, kept = (_named(workspace, files) for files in (going, staying))
    if not request.yes:
        _confirmed(listener, f"delete {', '.join(removed)}?")
    if virtual.stop(workspace, request.name):
        listener.say(f"the laboratory of {request.name} was ended")
    _delete(path.parent, going[::-1])
    if kept:
        stay, them = ("table stays", "it") if len(kept) == 1 else ("tables stay", "them")
        listener.say(f"{len(kept)} {stay} in {path.parent}; delete the folder to be rid of {them}")
    return RemoveDeviceResult(request.name, removed, kept)


def _removable(workspace: Workspace, name: str) -> Path:
    from hwbench.devices.device import SHIPPED

    path = workspace.device(name)
    if name in SHIPPED or not path.is_relative_to(workspace.root):
        raise InvalidValue(
            f"device {name!r} comes with hwbench and stays; to reach it in another way: "
            f"hwbench devices add {name} --force, with --ssh, --adb or --local"
        )
    return path


def _confirmed(listener: Listener, question: str) -> None:
    answer = listener.confirm(question)
    if answer is None:
        raise InvalidValue(f"{question} There is no terminal to ask on: add --yes")
    if not answer:
        raise InvalidValue("nothing was done")


def _delete(folder: Path, files: Sequence[Path]) -> None:
    from hwbench.workspace import writing

    with writing(files[0]):
        for file in files:
            file.unlink()
        if not any(folder.iterdir()):
            folder.rmdir()


def _named(workspace: Workspace, files: Sequence[Path]) -> tuple[str, ...]:
    return tuple(str(file.relative_to(workspace.root)) for file in files)
