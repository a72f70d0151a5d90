"""How a user wants videos to be read."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.data.decoders import DEFAULT
from hwbench.data.flow_stream import FLOW_CHANNELS, FlowStream
from hwbench.specs.tensor import CLIP_CHANNELS


@dataclass(frozen=True)
class Reading:
    """How videos become frames; by every decoder, with and without a cache, the frames are the same.

    Attributes:
        decoder: The name of the decoder.
        decoded_cache_bytes: What decoded videos may take on the disk; 0: none are kept there.
        flow: Where optical flow comes from that is seen in the place of pictures; None: pictures are seen.
    """

    decoder: str = DEFAULT
    decoded_cache_bytes: int = 0
    flow: FlowStream | None = None

    @property
    def channels(self) -> int:
        """Of a clip: 3 of pictures, 2 of flow."""
        return CLIP_CHANNELS if self.flow is None else FLOW_CHANNELS

    def facts(self) -> dict[str, str]:
        """What of it changes the clips, and so tells a run from another, name -> text."""
        return {} if self.flow is None else {"modality": str(self.flow)}


READING = Reading()
