"""Which engines are carried to other devices; known without loading one, before a runner is looked for."""

from __future__ import annotations

from hwbench.devices import Device
from hwbench.errors import InvalidValue
from hwbench.runtimes import DEFAULT, get, in_words, usable
from hwbench.specs import LOCAL  # its transport is called so, too


def check_runtime(device: Device, runtime: str, *, of_file: bool = False) -> None:
    """Refuses an engine that is not carried to other devices, on one of these; advises another engine, or to export
    the model for it where a file is given.

    Raises:
        InvalidValue: Files of that runtime are measured on this machine only.
    """
    if device.transport_name == LOCAL or get(runtime).capabilities.remote:
        return
    remote = [name for name, known in usable().items() if known.remote]
    first = DEFAULT if DEFAULT in remote else remote[0]
    export = f"export the model for it: hwbench export MODEL --runtime {first} --out DIR"
    raise InvalidValue(
        f"{runtime} files are measured on this machine only (--device {LOCAL}); device {device.name!r} runs "
        f"{in_words(remote)} files: {export if of_file else f'--runtime {first}'}"
    )
