"""How a user wants videos to be read."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.data.decoders import DEFAULT


@dataclass(frozen=True)
class Reading:
    """How videos become frames; the frames are the same in every way.

    Attributes:
        decoder: The name of the decoder.
        decoded_cache_bytes: What decoded videos may take on the disk; 0: none are kept there.
    """

    decoder: str = DEFAULT
    decoded_cache_bytes: int = 0


READING = Reading()
