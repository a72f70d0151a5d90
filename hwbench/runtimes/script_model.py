"""A ``.ts`` file, which is TorchScript with a note of ours inside, for the Python runner.

A TorchScript file is a program: whoever runs one trusts it, as with any other file of a runtime. It is loaded in the
process of a runner only.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from typing import Any

from hwbench.runtimes.protocol import Options
from hwbench.runtimes.python_models import ModelFailure, TorchModel
from hwbench.runtimes.torchscript import NOTE


class ScriptModel(TorchModel):
    """A frozen module."""

    def __init__(self, path: str, options: Options) -> None:
        note = read_note(path)
        import torch

        if note["engine"]:
            if note["engine"] not in torch.backends.quantized.supported_engines:
                raise ModelFailure("load", f"its int8 kernels are {note['engine']}, which this torch does not have")
            torch.backends.quantized.engine = note["engine"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces the end of TorchScript
            module = torch.jit.load(path, map_location="cpu")  # type: ignore[no-untyped-call]
        super().__init__(module, [note["input"]], options)


def read_note(path: str) -> dict[str, Any]:
    """What ``hwbench`` wrote into the archive.

    Raises:
        ModelFailure: It is no archive, or holds no such note.
    """
    expected = "expected TorchScript as hwbench export --runtime torchscript writes it"
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((n for n in archive.namelist() if n.endswith(f"/extra/{NOTE}")), None)
            note = json.loads(archive.read(name)) if name else None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelFailure("load", f"{expected}: {error}") from error
    if not isinstance(note, dict) or not isinstance(note.get("engine"), str) or not _is_shape(note.get("input")):
        raise ModelFailure("load", f"{expected}: the archive does not say the shape of its input")
    return note


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size > 0 for size in value)
