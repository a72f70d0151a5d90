"""Writing a ``device.toml``: what was found of a device as comments, the rest so that ``read_device`` gives it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from hwbench.devices.device import Device
from hwbench.ownership import keep_to_us, make_closed_folder
from hwbench.printable import printable
from hwbench.specs import LOCAL
from hwbench.toml_fields import SCHEMA
from hwbench.workspace import Workspace, write_text, writing

# A comment of a file that people read; getprop may say anything.
MAX_NOTE = 300


def write_device(workspace: Workspace, device: Device, notes: Sequence[str] = ()) -> Path:
    """Writes the file of a device into the workspace, over one that is there; returns its path.

    Nobody else can write it, nor a folder that is made for it, whatever the umask is.

    Raises:
        WorkspaceError: It cannot be written.
    """
    path = workspace.root / "profiles" / device.name / "device.toml"
    with writing(path):
        make_closed_folder(path.parent)
        write_text(path, device_toml(device, notes))
        keep_to_us(path)
    return path


def device_toml(device: Device, notes: Sequence[str] = ()) -> str:
    """The text of a device file; ``notes`` stand above it as comments, one line each.

    What is as by default is left out. No text in it can end its line or its quotes.
    """
    values = {
        "schema": SCHEMA,
        "name": device.name,
        "description": printable(device.description),
        "transport": device.transport_name,
        "threads": device.threads,
        "cpus": device.cpus,
    }
    rest = {field.name: getattr(device, field.name) for field in fields(Device) if field.name not in _ALWAYS}
    defaults = Device(device.name, device.transport_name)
    values |= {name: value for name, value in rest.items() if value != getattr(defaults, name)}
    if device.transport_name != LOCAL:
        values["work_dir"] = device.work_dir  # its default is another one for each transport
    lines = [f"# {printable(note, MAX_NOTE)}".rstrip() for note in notes]
    lines += [f"{name} = {_toml(value)}" for name, value in values.items() if value not in ("", ())]
    if device.options:
        lines += ["", f"[{device.transport_name}]"]
        lines += [f"{name} = {_toml(value)}" for name, value in device.options.items()]
    return "\n".join(lines) + "\n"


_ALWAYS = {"name", "transport_name", "description", "threads", "cpus", "options", "workspace", "typed"}


def _toml(value: object) -> str:
    """A text, number, boolean, or a list of them. TOML's basic strings have the escapes of JSON.

    A path keeps all of its spaces; what cannot be shown becomes one line.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    fit = not isinstance(value, str) or value.isprintable()
    return json.dumps(value if fit else printable(str(value)), ensure_ascii=False)
