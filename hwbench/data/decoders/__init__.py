"""Decoders of video files by name: ``hwbench train --decoder NAME``."""

from __future__ import annotations

from hwbench.data.decoders.base import Decoder, decoders
from hwbench.data.decoders.named import NamedDecoder
from hwbench.data.decoders.pyav import PYAV, PyAV
from hwbench.errors import MissingDependency
from hwbench.printable import shown

DEFAULT = "pyav"

decoders.defer({"pyav": "hwbench.data.decoders.pyav", "torchcodec": "hwbench.data.decoders.torchcodec"})


def get(name: str = DEFAULT) -> Decoder:
    """The decoder of that name, ready to read; what one of another package raises is told with its name.

    Raises:
        UnknownName: There is no such decoder.
        MissingDependency: What it needs is not installed, or does not load; or it is of another package and has no
            ``identity``, without which caches would take its frames for those of another decoder.
        HwbenchError: It is of another package, and its constructor raises.
    """
    made = decoders.get(name)
    with decoders.blaming(made):
        decoder = made()
    title = decoders.origin(made)
    if not title:
        return decoder
    with decoders.blaming(made):
        identity = getattr(decoder, "identity", None)
    if not isinstance(identity, str) or not identity.strip():
        raise MissingDependency(f"{title}: expected an identity, its name and version as text, got {shown(identity)}")
    return NamedDecoder(decoder, title)


__all__ = ["DEFAULT", "PYAV", "Decoder", "PyAV", "decoders", "get"]
